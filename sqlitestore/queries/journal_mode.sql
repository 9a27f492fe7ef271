-- Returns the journal mode. Locks nothing, needs no index.
pragma journal_mode
