-- Frees the leases $1, which are locked, and raises their epochs, so that previous owners cannot commit. Those in $2 have dead
-- owners, and count as crashed. Index: leases_pkey. Locks: the rows until the commit.
update {control}.leases l
   set owner = null, epoch = l.epoch + 1, free_since = case when l.owner is null then l.free_since else clock_timestamp() end,
       crash_count = l.crash_count + (l.id = any($2::integer[]))::integer
 where l.id = any($1::integer[])
