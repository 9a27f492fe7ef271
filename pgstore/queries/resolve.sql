-- Ends a dead letter whose event was applied, and frees its stream after the last of them. Indexes: dead_letters_pkey, the
-- partial ones of dead_letters, parked_streams_pkey, commands_pkey, projections_pkey. Locks: the rows until the commit.
with letter as (
    update {control}.dead_letters d set state = 'resolved', begun = 0, ended_at = clock_timestamp()
     where d.id = $2::bigint and d.projection_id = $1::integer and d.state = 'replaying'
    returning d.id, d.stream_id
), freed as (
    delete from {control}.parked_streams s using letter
     where s.projection_id = $1::integer and s.stream_id = letter.stream_id
       and not exists (select from {control}.dead_letters d
                        where d.projection_id = $1::integer and d.stream_id = letter.stream_id and d.id <> letter.id
                          and d.state in ('parked', 'replaying'))
), told as (
    update {control}.commands c set done = c.done + 1, replaying = null from letter where c.id = $3::bigint
)
update {control}.projections p set parked = p.parked - 1 from letter where p.id = $1::integer
