-- Ends the savepoint of an append that succeeded. Locks nothing, needs no index.
release millrace_append
