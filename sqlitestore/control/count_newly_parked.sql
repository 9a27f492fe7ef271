-- Counts those of the positions ?2 (JSON) that are not parked yet as parked for projection ?1. Lock: that of the file's writer.
-- Indexes: the primary key, and the partial one of dead letters by position.
update millrace_projections
set parked = parked + json_array_length(?2)
- (select count(*) from json_each(?2) e cross join millrace_dead_letters d
where d.projection = ?1 and d.position = e.value and d.state in ('parked', 'replaying'))
where id = ?1
