-- Gives leases back, each with its checkpoint moved over what did not concern its projection, and tells the nodes. A
-- lease that is no longer held is passed over. $6 is the channel. Index: leases_pkey. Locks: the rows FOR NO KEY UPDATE
-- until the commit, and the queue of notifications during it.
with released as (
    update {control}.leases l
       set owner = null, free_since = clock_timestamp(),
           checkpoint = greatest(l.checkpoint, case when l.checkpoint = r.old then r.new else 0 end)
      from unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[]) as r(id, epoch, old, new)
     where l.id = r.id and l.owner = $5::uuid and l.epoch = r.epoch
    returning l.id
)
select pg_notify($6::text, '') where exists (select from released)
