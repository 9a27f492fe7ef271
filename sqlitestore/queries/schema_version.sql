-- Returns a number that changes with each change of a table, index or trigger in the file. Locks nothing, needs no index.
pragma schema_version
