-- Returns the positions of the first and the last of the dead letters ?2 (JSON) of projection ?1: 1 and 0 without any.
-- Index: the primary key. Locks nothing.
select coalesce(min(position), 1), coalesce(max(position), 0)
from millrace_dead_letters where projection = ?1 and id in (select value from json_each(?2))
