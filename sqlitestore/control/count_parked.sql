-- Counts the parked events of the partitions ?1 (JSON) anew. Indexes: the primary key, and that of parked events. Lock: that of the
-- file's writer.
update millrace_projections
set parked = (select count(*) from millrace_dead_letters d where d.projection = millrace_projections.id and d.state in ('parked', 'replaying'))
where id in (select value from json_each(?1))
