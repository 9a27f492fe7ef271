-- Gives up a dead letter whose handler asked for that on a replay, under the fence, and counts its event as skipped; $8 is the number of the attempt. Its stream goes
-- on, and is freed after the last of it. Indexes: leases_pkey, dead_letters_pkey, the partial ones of dead_letters,
-- parked_streams_pkey, commands_pkey, projections_pkey. Locks, until the commit: the row of leases FOR SHARE, the others FOR NO KEY
-- UPDATE or FOR UPDATE.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint for share
), letter as (
    update {control}.dead_letters d
       set state = 'discarded', behind = false, begun = 0, replays = d.replays + 1, attempts = $8::integer,
           error = $6::text, stack = $7::text, last_failed_at = clock_timestamp(), ended_at = clock_timestamp()
      from held
     where d.id = $4::bigint and d.projection_id = held.id and d.state = 'replaying'
    returning d.id, d.projection_id, d.stream_id
), freed as (
    delete from {control}.parked_streams s using letter
     where s.projection_id = letter.projection_id and s.stream_id = letter.stream_id
       and not exists (select from {control}.dead_letters d
                        where d.projection_id = letter.projection_id and d.stream_id = letter.stream_id and d.id <> letter.id
                          and d.state in ('parked', 'replaying'))
), told as (
    update {control}.commands c set done = c.done + 1, replaying = null from letter where c.id = $5::bigint
)
update {control}.projections p set parked = p.parked - 1, skipped = p.skipped + 1 from letter where p.id = letter.projection_id
