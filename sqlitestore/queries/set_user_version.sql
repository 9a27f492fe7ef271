-- Sets the version of the schema, in the file's header. Lock: that of the file's writer. Needs no index.
pragma user_version = {version}
