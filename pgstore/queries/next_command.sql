-- Returns the oldest open command of projection $1, discards first, since a discard may be meant to end a replay. If
-- $2 is set, replays are left out, except those at their limit, which only have to end. It also returns what is
-- parked. Indexes: commands_projection_id_id_idx, projections_pkey, parked_streams_pkey. Locks nothing.
select coalesce(c.id, 0), coalesce(c.kind = 'replay', false), p.parked,
       (select true from {control}.parked_streams s where s.projection_id = p.id order by s.stream_id limit 1) is not null
  from {control}.projections p
  left join lateral (select c.id, c.kind from {control}.commands c
                      where c.projection_id = p.id and c.ended_at is null
                        and (c.kind = 'discard' or c.done + c.failed >= c.max_events or not $2::boolean)
                      order by c.kind, c.id limit 1) c on true
 where p.id = $1::integer
