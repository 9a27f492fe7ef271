-- Inserts rows by which replays of the partitions $6 continue: for the replays $1, in the partitions $2, with the filters
-- and limits of the open rows $3, at the parked streams $4, and for these streams only if $5. Returns their ids, which
-- rise in this order. Index: commands_projection_id_id_idx. Locks: the new rows, and the rows of projections FOR KEY SHARE, which the caller has inserted.
insert into {control}.commands (root, projection_id, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, created_at)
select n.root, n.projection_id, c.kind, case when n.stream_only then '{}' else c.dead_letter_ids end, c.stream_id, c.type, c.error, c.max_events,
       n.stream, c.created_at
  from unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[], $5::boolean[]) with ordinality as n(root, projection_id, id, stream, stream_only, nth)
  join {control}.commands c on c.projection_id = any($6::integer[]) and c.ended_at is null and c.id = n.id
 order by n.nth
returning id
