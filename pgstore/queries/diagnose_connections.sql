-- Returns how many connections the server accepts, without those reserved for superusers; how many are open; the limits
-- of the database and of the role, -1 for none; and the server's clock in microseconds. Locks nothing, needs no
-- index.
select current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(nullif(current_setting('reserved_connections', true), ''), '0')::integer,
       (select count(*) from pg_catalog.pg_stat_activity where backend_type = 'client backend')::integer,
       d.datconnlimit, r.rolconnlimit, (extract(epoch from clock_timestamp()) * 1000000)::bigint
  from pg_catalog.pg_database d, pg_catalog.pg_roles r
 where d.datname = current_database() and r.rolname = current_user
