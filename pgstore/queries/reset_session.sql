-- Resets the time-outs and transaction defaults that the host's hooks and roles may have set, in a session of the
-- store. Servers differ in which of these settings they have. Locks nothing, needs no index.
select set_config(name, value, false) from pg_settings
  join (values ('statement_timeout', '0'), ('lock_timeout', '0'), ('transaction_timeout', '0'), ('idle_session_timeout', '0'),
               ('idle_in_transaction_session_timeout', '0'), ('default_transaction_read_only', 'off'),
               ('default_transaction_isolation', 'read committed')) own (name, value) using (name)
