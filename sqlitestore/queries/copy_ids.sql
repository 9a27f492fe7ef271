-- Returns the highest ids of projections, dead letters and commands that were ever given. Index: none; the table of
-- sequences has a row for each table. Locks nothing.
select coalesce(max(seq) filter (where name = 'millrace_projections'), 0),
       coalesce(max(seq) filter (where name = 'millrace_dead_letters'), 0),
       coalesce(max(seq) filter (where name = 'millrace_commands'), 0)
from sqlite_sequence
