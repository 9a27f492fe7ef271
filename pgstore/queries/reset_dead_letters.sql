-- Resolves the dead letters of the partitions $1 above the checkpoint $2: their events will be passed again. Streams
-- without other parked events continue. A replay in progress of one of the partitions $3, whose owners are alive, is not
-- counted: see release.sql. The caller has locked the partitions. It returns how many dead letters it resolved. Indexes:
-- the partial indexes of dead_letters by position and by stream, parked_streams_pkey, projections_pkey. Locks, until the
-- commit: the rows of dead letters and projections FOR NO KEY UPDATE, and of streams FOR UPDATE.
with resolved as (
    update {control}.dead_letters d set state = 'resolved', open_replays = 0, ended_at = clock_timestamp()
     where d.projection_id = any($1::integer[]) and d.state in ('parked', 'replaying') and d.position > $2::bigint
    returning d.projection_id, d.stream_id
), replaying as (
    update {control}.dead_letters d
       set open_replays = greatest(d.open_replays - 1, 0), state = case when d.open_replays <= 1 then 'parked' else d.state end,
           last_command = case when d.open_replays <= 1 then 0 else d.last_command end
     where d.projection_id = any($3::integer[]) and d.state in ('parked', 'replaying') and d.state = 'replaying' and d.position <= $2::bigint
), streams as (
    delete from {control}.parked_streams s
     using (select distinct projection_id, stream_id from resolved) r
     where s.projection_id = r.projection_id and s.stream_id = r.stream_id
       and not exists (select from {control}.dead_letters d
                        where d.projection_id = r.projection_id and d.stream_id = r.stream_id and d.state in ('parked', 'replaying')
                          and d.position <= $2::bigint)
), counted as (
    update {control}.projections p set parked = p.parked - r.n
      from (select projection_id, count(*) as n from resolved group by projection_id) r
     where p.id = r.projection_id
)
select count(*) from resolved
