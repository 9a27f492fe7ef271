-- Returns what Open checks of the server; $1 are names of settings. Locks nothing, needs no index.
select current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(),
       (select json_object_agg(name, current_setting(name)) from unnest($1::text[]) name)
