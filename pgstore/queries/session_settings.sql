-- What was set in this session, beside its role; the last row tells that alone. Locks nothing, needs no index.
select name, setting, current_setting('role') from pg_settings where source = 'session'
union all
select '', '', current_setting('role')
