-- Begins the savepoint of an append. Locks nothing, needs no index.
savepoint millrace_append
