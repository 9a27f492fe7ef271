-- Gives leases back, each with its checkpoint moved over what did not concern its projection, and tells the nodes. A lease
-- that is no longer held is passed over. Attempts that were counted in advance, and did not end the process, are taken back:
-- $7 their positions, $8 their numbers, and $9 the dead letters of such replays. $10 is the channel. A checkpoint that was
-- read in another incarnation of the server stays where it is. Indexes: leases_pkey, projections_pkey, dead_letters_pkey.
-- Locks: the rows of leases, and of such projections and letters, FOR NO KEY UPDATE until the commit, and the queue of
-- notifications during it.
with released as (
    update {control}.leases l
       set owner = null, free_since = clock_timestamp(),
           checkpoint = greatest(l.checkpoint, case when l.checkpoint = r.old and r.seen = (select {control}.incarnation()) then r.new else 0 end)
      from unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $7::bigint[], $8::integer[], $9::bigint[])
           as r(id, epoch, seen, old, new, begun, attempt, letter)
     where l.id = r.id and l.owner = $6::uuid and l.epoch = r.epoch
    returning l.id, r.begun, r.attempt, r.letter
), taken_back as (
    update {control}.projections p set crash_attempts = p.crash_attempts - 1
      from released r
     where p.id = r.id and r.attempt > 0 and p.crash_position = r.begun and p.crash_attempts = r.attempt
), put_back as (
    update {control}.dead_letters d
       set begun = d.begun - 1, state = case when d.begun = 1 then 'parked' else d.state end, tried_by = case when d.begun = 1 then 0 else d.tried_by end
      from released r
     where d.id = r.letter and d.projection_id = r.id and d.state = 'replaying'
)
select pg_notify($10::text, 'free') where exists (select from released)
