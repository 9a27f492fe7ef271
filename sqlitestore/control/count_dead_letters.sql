-- Counts dead letters of a projection. ?1 tenant, ?2 projection, ?3 partition (0: all), ?4 to ?7 the filter: ids
-- (JSON), stream, type, a part of the error (null: any), ?8 states (JSON). Indexes: those of tenants and projections by name,
-- those of dead letters. Locks nothing.
select count(*) from millrace_tenants t join millrace_projections p on p.tenant = t.id
join millrace_dead_letters d on d.projection = p.id
where t.name = ?1 and p.name = ?2 and (?3 = 0 or p.partition = ?3) and d.state in (select value from json_each(?8))
and (?4 is null or d.id in (select value from json_each(?4))) and (?5 is null or d.stream_id = ?5)
and (?6 is null or d.type = ?6) and (?7 is null or instr(d.error, ?7) > 0)
