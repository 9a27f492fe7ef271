-- The server's incarnation. It raises on a standby. A read follows in the same message, and so in the same session. Locks nothing.
-- Needs no index.
select {control}.incarnation()
