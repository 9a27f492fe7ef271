-- Ends command ?1 for all of its partitions at ?4, if it belongs to projection ?3 of tenant ?2. A partition that has
-- begun a replay or is inside a parked stream continues until the owner of its lease ends the command, as at its limit.
-- For such partitions it returns 0. Indexes: those of commands by id and root, of tenants and projections by id. Lock:
-- that of the file's writer.
update millrace_commands as c set max_events = c.done + c.failed,
    ended_at = case when c.current_stream is null and c.current_dead_letter is null then ?4 end
where (c.id = ?1 or c.root = ?1) and c.ended_at is null
and exists (select 1 from millrace_projections p join millrace_tenants t on t.id = p.tenant
             where p.id = c.projection and t.name = ?2 and p.name = ?3)
returning projection, ended_at is not null
