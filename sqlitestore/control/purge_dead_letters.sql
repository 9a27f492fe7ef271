-- Deletes dead letters of a projection that ended at least ?8 ago, the oldest first, at most ?9, and returns their ids. ?1
-- tenant, ?2 projection, ?3 partition (0: all), ?4 to ?7 the filter as in count_dead_letters.sql. It sorts a page of each
-- partition. It leaves a discarded dead letter while its stream is parked: without it the event would seem to be handled
-- (later_handled.sql). Indexes: those of tenants and projections by name, that of ended dead letters by age, the primary key of parked
-- streams. Lock: that of the file's writer.
delete from millrace_dead_letters where id in (
    select d.id from millrace_tenants t join millrace_projections p on p.tenant = t.id
    join millrace_dead_letters d on d.id in (
        select x.id from millrace_dead_letters x
        where x.projection = p.id and x.state in ('resolved', 'discarded') and x.ended_at <= :now - ?8
        and (x.state = 'resolved' or not exists (select 1 from millrace_parked_streams s where s.projection = x.projection and s.stream_id = x.stream_id))
        and (?4 is null or x.id in (select value from json_each(?4))) and (?5 is null or x.stream_id = ?5)
        and (?6 is null or x.type = ?6) and (?7 is null or instr(x.error, ?7) > 0)
        order by x.ended_at limit ?9)
    where t.name = ?1 and p.name = ?2 and (?3 = 0 or p.partition = ?3)
    order by d.ended_at limit ?9)
returning id
