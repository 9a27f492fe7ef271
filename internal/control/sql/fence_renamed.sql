-- Frees the leases $1, which are locked, and raises their epochs, so that previous owners cannot commit. Those in $2 have dead
-- owners, and count as crashed. Index: leases_pkey. Locks: the rows until the commit.
update {control}.leases
   set owner = null, epoch = epoch + 1, free_since = case when owner is null then free_since else {now} end,
       crash_count = crash_count + (id {in $2::integer[]})::integer
 where id {in $1::integer[]}
