-- Returns what Open checks of the server. Locks nothing, needs no index.
select current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(),
current_setting('default_transaction_read_only'), current_setting('default_transaction_isolation'),
current_setting('server_encoding'), current_setting('client_encoding'), current_setting('standard_conforming_strings'),
current_setting('fsync'), current_setting('full_page_writes')
