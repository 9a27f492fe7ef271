-- Marks a dead letter resolved after its event was applied, and releases its stream after the last of them. $1 lease,
-- $2 dead letter, $3 command. Indexes: dead_letters_pkey, the partial indexes of dead_letters, parked_streams_pkey,
-- commands_pkey, projections_pkey. Locks: the rows until the commit.
with resolved as (
    update {control}.dead_letters d set state = 'resolved', open_replays = 0, ended_at = clock_timestamp()
     where d.id = $2::bigint and d.projection_id = $1::integer and d.state = 'replaying'
    returning d.id, d.stream_id
), released as (
    delete from {control}.parked_streams s using resolved r
     where s.projection_id = $1::integer and s.stream_id = r.stream_id
       and not exists (select from {control}.dead_letters d
                        where d.projection_id = $1::integer and d.stream_id = r.stream_id and d.id <> r.id
                          and d.state in ('parked', 'replaying'))
), counted as (
    update {control}.commands c set done = c.done + 1, current_dead_letter = null from resolved where c.id = $3::bigint
)
update {control}.projections p set parked = p.parked - 1 from resolved where p.id = $1::integer
