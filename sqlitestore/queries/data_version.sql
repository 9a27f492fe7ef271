-- Returns a number that changes when another connection has committed. It can be compared with earlier results of the same
-- connection. Locks nothing, needs no index.
pragma data_version
