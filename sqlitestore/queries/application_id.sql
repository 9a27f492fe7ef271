-- Returns the application id in the file's header, which identifies the program that owns the file. Locks
-- nothing for longer than the statement, needs no index.
pragma application_id
