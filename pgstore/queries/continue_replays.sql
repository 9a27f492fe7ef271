-- Inserts rows by which the open replays of the partitions $1 continue in new ones: $2 has these, $3 and $4 the slots
-- from and to which they have streams. A parked stream that is being replayed continues in the partition that has it.
-- Each row replays one such stream at most, and each stream is replayed by one row. So if partitions are joined,
-- further rows replay only their stream, and no other dead letters. Rows that replay only a stream continue last. Indexes:
-- commands_projection_id_id_idx, projections_pkey. Locks: the new rows.
with part as (
    select r.id, r.slot_from, r.slot_to from unnest($2::integer[], $3::integer[], $4::integer[]) as r(id, slot_from, slot_to)
), open as (
    select c.*, coalesce(c.root, c.id) as origin, p.slot_from, p.slot_to,
           ('x' || left(md5(c.current_stream), 7))::bit(28)::integer as stream_slot
      from {control}.commands c join {control}.projections p on p.id = c.projection_id
     where c.projection_id = any($1::integer[]) and c.ended_at is null and c.kind = 'replay'
), at as (
    select o.origin, part.id as part, o.current_stream, min(o.id) as first
      from open o join part on o.stream_slot >= part.slot_from and o.stream_slot < part.slot_to
     group by o.origin, part.id, o.current_stream
), stream as (
    select a.origin, a.part, a.current_stream, row_number() over (partition by a.origin, a.part order by a.first) as nth from at a
), next as (
    select distinct on (o.origin, part.id) part.id as part, o.*
      from open o join part on o.slot_from < part.slot_to and part.slot_from < o.slot_to
     order by o.origin, part.id, coalesce(cardinality(o.dead_letter_ids), 1) = 0, o.id
)
insert into {control}.commands (root, projection_id, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, created_at)
select n.origin, n.part, n.kind, case when s.nth > 1 then '{}' else n.dead_letter_ids end, n.stream_id, n.type, n.error, n.max_events,
       s.current_stream, n.created_at
  from next n left join stream s on s.origin = n.origin and s.part = n.part
 order by n.origin, n.part, s.nth
