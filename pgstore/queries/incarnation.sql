-- Returns the server's incarnation. The same message then reads, in the same session. It raises on a standby. Locks
-- nothing. Needs no index.
select {control}.incarnation()
