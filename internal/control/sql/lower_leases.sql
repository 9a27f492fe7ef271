-- Lowers the checkpoints of the partitions $1, which the caller has locked, to $2 if they are higher, and takes the leases away.
-- The new epoch $3 is higher than all of theirs: no owner can commit any more. Index: leases_pkey. Locks: the rows FOR NO KEY
-- UPDATE until the commit.
update {control}.leases
   set checkpoint = case when checkpoint > $2::bigint then $2::bigint else checkpoint end, epoch = $3::bigint, crash_count = 0, owner = null,
       free_since = case when owner is null then free_since else {now} end
 where id {in $1::integer[]}
