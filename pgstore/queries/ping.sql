-- Whether the server answers and takes writes. Locks nothing, needs no index.
select pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean
