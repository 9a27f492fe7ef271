-- Returns the settings that were made in this session, each with the session's user, role and process id. The last
-- row has only those three. Characteristics of the transaction are left out. Locks nothing, needs no index.
select name, setting, session_user, current_setting('role'), pg_backend_pid() from pg_settings
 where source = 'session' and name not in ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
union all
select '', '', session_user, current_setting('role'), pg_backend_pid()
