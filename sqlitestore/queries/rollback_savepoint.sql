-- Undoes an append that failed. release_savepoint.sql ends its savepoint after that. Locks nothing, needs no index.
rollback to millrace_append
