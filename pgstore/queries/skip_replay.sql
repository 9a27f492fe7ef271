-- Discards a dead letter whose handler requested that during a replay, under the fence, and counts its event as
-- skipped. Its stream continues, and is released after the last event. $1 lease, $2 owner, $3 epoch, $4 dead letter, $5
-- command, $6 error, $7 stack, $8 attempt. Indexes: leases_pkey, dead_letters_pkey, the partial indexes of
-- dead_letters, parked_streams_pkey, commands_pkey, projections_pkey. Locks, until the commit: the row of leases FOR
-- SHARE, the others FOR NO KEY UPDATE or FOR UPDATE.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint for share
), discarded as (
    update {control}.dead_letters d
       set state = 'discarded', blocked_by_stream = false, open_replays = 0, replays = d.replays + 1, attempts = $8::integer,
           error = $6::text, stack = $7::text, last_failed_at = clock_timestamp(), ended_at = clock_timestamp()
      from held
     where d.id = $4::bigint and d.projection_id = held.id and d.state = 'replaying'
    returning d.id, d.projection_id, d.stream_id
), released as (
    delete from {control}.parked_streams s using discarded x
     where s.projection_id = x.projection_id and s.stream_id = x.stream_id
       and not exists (select from {control}.dead_letters d
                        where d.projection_id = x.projection_id and d.stream_id = x.stream_id and d.id <> x.id
                          and d.state in ('parked', 'replaying'))
), counted as (
    update {control}.commands c set done = c.done + 1, current_dead_letter = null from discarded where c.id = $5::bigint
)
update {control}.projections p set parked = p.parked - 1, skipped = p.skipped + 1 from discarded x where p.id = x.projection_id
