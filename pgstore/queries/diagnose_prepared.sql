-- Returns the prepared transactions of this database that were prepared at least $1 seconds ago, with their owners and
-- ages in seconds. Locks nothing, needs no index.
select gid, owner::text, extract(epoch from clock_timestamp() - prepared)::double precision
  from pg_catalog.pg_prepared_xacts
 where database = current_database() and prepared <= clock_timestamp() - make_interval(secs => $1::double precision)
 order by prepared
 limit 10
