-- The replays of the partitions $1 continue by other rows in the partitions $2, to which their dead letters and
-- parked streams were moved. Marks the dead letters and streams that these replays have tried as tried by those rows.
-- Indexes: commands_projection_id_id_idx, commands_root_idx, dead_letters_projection_id_position_key,
-- parked_streams_pkey. Locks: the rows, which the transaction has changed.
with tried as (
    select o.id as before, n.projection_id, min(n.id) as after
      from {control}.commands o join {control}.commands n on n.root = coalesce(o.root, o.id)
     where o.projection_id = any($1::integer[]) and o.ended_at is null and n.projection_id = any($2::integer[]) and n.ended_at is null
     group by o.id, n.projection_id
), streams as (
    update {control}.parked_streams s
       set last_command = coalesce((select min(n.id) from {control}.commands n
                                     where n.projection_id = s.projection_id and n.current_stream = s.stream_id and n.ended_at is null
                                       and n.root = (select coalesce(o.root, o.id) from {control}.commands o where o.id = t.before)), t.after)
      from tried t where s.projection_id = t.projection_id and s.last_command = t.before
)
update {control}.dead_letters d set last_command = t.after
  from tried t where d.projection_id = t.projection_id and d.last_command = t.before
