-- Returns the transaction of this database with the oldest snapshot, and its age in seconds. Locks nothing, needs no
-- index.
select pid, coalesce(extract(epoch from clock_timestamp() - xact_start), 0)::double precision
  from pg_stat_activity
 where backend_xmin is not null and datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
 order by age(backend_xmin) desc, xact_start
 limit 1
