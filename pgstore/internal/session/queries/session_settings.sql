-- The settings made in this session, each with the session's user and role. The last row has only user, role and process id.
-- The characteristics of the transaction are no settings of the session. Locks nothing, needs no index.
select name, setting, session_user, current_setting('role'), pg_backend_pid() from pg_settings
 where source = 'session' and name not in ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
union all
select '', '', session_user, current_setting('role'), pg_backend_pid()
