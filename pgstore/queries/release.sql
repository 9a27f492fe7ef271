-- Gives leases back, each with its checkpoint moved over what did not concern its projection, and tells the nodes. A
-- lease that is no longer held is passed over. Attempts that were counted before they were made, and of which the process
-- did not die, are taken back: $6 their positions, $7 their numbers. $8 is the channel. Indexes: leases_pkey,
-- projections_pkey. Locks: the rows of leases, and of such projections, FOR NO KEY UPDATE until the commit, and the queue of
-- notifications during it.
with released as (
    update {control}.leases l
       set owner = null, free_since = clock_timestamp(),
           checkpoint = greatest(l.checkpoint, case when l.checkpoint = r.old then r.new else 0 end)
      from unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $6::bigint[], $7::integer[]) as r(id, epoch, old, new, begun, attempt)
     where l.id = r.id and l.owner = $5::uuid and l.epoch = r.epoch
    returning l.id, r.begun, r.attempt
), taken_back as (
    update {control}.projections p set deaths = p.deaths - 1
      from released r
     where p.id = r.id and r.attempt > 0 and p.trying_position = r.begun and p.deaths = r.attempt
)
select pg_notify($8::text, 'free') where exists (select from released)
