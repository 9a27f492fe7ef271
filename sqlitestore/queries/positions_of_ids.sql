-- Returns the positions of the first and the last of the dead letters ?2 (JSON) of projection ?1: 1 and 0 without any. The
-- cross join keeps the planner from reading all dead letters of the projection. Index: the primary key. Locks nothing.
select coalesce(min(d.position), 1), coalesce(max(d.position), 0)
from json_each(?2) i cross join millrace_dead_letters d on d.id = i.value where d.projection = ?1
