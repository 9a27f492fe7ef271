-- Releases leases, each with its checkpoint moved over events that do not concern its projection, and notifies the
-- nodes over channel $10. Leases that are no longer held are skipped. A checkpoint from another incarnation is not
-- moved. $1 to $5 are arrays: rows, epochs, incarnations, old and new checkpoints. $6 is the node. Attempts that were
-- counted in advance and did not crash the process are subtracted: $7 are their positions, $8 their numbers, $9 the
-- dead letters of open replays. Those are found by their ids alone: "= any" keeps the planner from a join of all dead
-- letters, "coalesce" from their other indexes. Indexes: leases_pkey (as in fence_functions.sql), projections_pkey,
-- dead_letters_pkey. Locks: the rows of leases, and of such projections and dead letters, FOR NO KEY UPDATE until the commit, and
-- the queue of notifications during the commit.
with released as (
    update {control}.leases l
       set owner = null, free_since = clock_timestamp(),
           checkpoint = greatest(l.checkpoint, case when l.checkpoint = r.old and r.incarnation = (select {control}.incarnation())
                                            then r.new else 0 end)
      from unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $7::bigint[], $8::integer[], $9::bigint[])
           as r(id, epoch, incarnation, old, new, position, attempt, dead_letter)
     where l.id = r.id and coalesce(l.owner = $6::uuid, false) and l.epoch = r.epoch
    returning l.id, r.position, r.attempt, r.dead_letter
), attempts as (
    update {control}.projections p set crash_attempts = p.crash_attempts - 1
      from released r
     where p.id = r.id and r.attempt > 0 and p.crash_position = r.position and p.crash_attempts = r.attempt
), replays as (
    update {control}.dead_letters d
       set open_replays = d.open_replays - 1, state = case when d.open_replays = 1 then 'parked' else d.state end,
           last_command = case when d.open_replays = 1 then 0 else d.last_command end
      from released r
     where r.dead_letter > 0 and d.id = any(array[r.dead_letter])
       and coalesce(d.projection_id = r.id and d.state = 'replaying', false)
)
select pg_notify($10::text, 'free') where exists (select from released)
