-- Returns whether the connection refuses all writes. Locks nothing, needs no index.
pragma query_only
