-- Returns the values of the settings {names} in this session, and its user, role and process id. Locks nothing, needs
-- no index.
select name, current_setting(name), session_user, current_setting('role'), pg_backend_pid()
  from unnest({names}::text[]) name where current_setting(name, true) is not null
