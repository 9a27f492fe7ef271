-- What these settings are in this session, beside its user, its role and its process id. Locks nothing, needs no index.
select name, current_setting(name), session_user, current_setting('role'), pg_backend_pid()
  from unnest({names}::text[]) name where current_setting(name, true) is not null
