-- Part of insert_command.sql and schedule_replay.sql: at most 1,000 commands of projection p that ended a day ago.
-- Rows of a command that is open for another partition stay, since its result is the sum of all rows. Indexes:
-- commands_projection_id_ended_at_idx, commands_pkey, commands_root_idx. Locks nothing.
select o.id from {control}.commands o
 where o.projection_id = p.id and o.ended_at < clock_timestamp() - interval '1 day'
   and not exists (select from {control}.commands x where x.id = o.root and x.ended_at is null)
   and not exists (select from {control}.commands x where x.root = coalesce(o.root, o.id) and x.ended_at is null)
 limit 1000
