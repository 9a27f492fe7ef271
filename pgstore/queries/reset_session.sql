-- Resets the time-outs and transaction defaults that the host's hooks and roles may have set, in a session of the
-- store. Servers differ in which of these settings they have. list_peers.sql reads in the order of an index: see
-- skip_in_order.sql. Locks nothing, needs no index.
select set_config(name, value, false) from pg_settings
  join (values ('statement_timeout', '0'), ('lock_timeout', '0'), ('transaction_timeout', '0'), ('idle_session_timeout', '0'),
               ('idle_in_transaction_session_timeout', '0'), ('default_transaction_read_only', 'off'),
               ('default_transaction_isolation', 'read committed'), ('enable_sort', 'off'), ('jit', 'off')) own (name, value) using (name)
