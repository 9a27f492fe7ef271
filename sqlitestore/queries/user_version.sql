-- Returns the version of the schema, by the file's header. Locks nothing, needs no index.
pragma user_version
