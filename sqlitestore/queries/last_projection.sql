-- Returns the highest id of a projection, 0 if there is none. Index: the primary key. Locks nothing.
select coalesce(max(id), 0) from millrace_projections
