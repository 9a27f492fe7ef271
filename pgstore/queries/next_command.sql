-- The oldest command that is not carried out, discards before the replays that they may be meant to end, and where $2 says so
-- none that calls a handler: replays that have only to be ended do not. And what is parked. Indexes: commands_projection_id_id_idx, projections_pkey, parked_streams_pkey. Locks nothing.
select coalesce(c.id, 0), coalesce(c.kind = 'replay', false), p.parked,
       (select true from {control}.parked_streams s where s.projection_id = p.id order by s.stream_id limit 1) is not null
  from {control}.projections p
  left join lateral (select c.id, c.kind from {control}.commands c
                      where c.projection_id = p.id and c.ended_at is null and (c.kind = 'discard' or c.done + c.failed >= c.most or not $2::boolean)
                      order by c.kind, c.id limit 1) c on true
 where p.id = $1::integer
