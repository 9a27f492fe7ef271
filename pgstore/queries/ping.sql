-- Reports whether the server is a standby, and whether transactions are read-only by default. Locks nothing, needs no
-- index.
select pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean
