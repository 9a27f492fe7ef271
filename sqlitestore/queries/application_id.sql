-- Returns whose the file is, by its header. Locks nothing for longer than the statement, needs no index.
pragma application_id
