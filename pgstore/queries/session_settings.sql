-- What was set in this session, beside its user and its role; the last row has those alone. Locks nothing, needs no index.
select name, setting, session_user, current_setting('role') from pg_settings where source = 'session'
union all
select '', '', session_user, current_setting('role')
