-- What these settings are in this session, beside its role and its process id. Locks nothing, needs no index.
select name, current_setting(name), current_setting('role'), pg_backend_pid()
  from unnest({names}::text[]) name where current_setting(name, true) is not null
