-- Inserts an operation on projection ?2 of the tenant number ?1, unless it has an open one, and returns its number. ?3 kind,
-- ?4 names of the projections to hold (JSON), ?5 options, ?6 the time. Index: that of open operations. Lock: that of the
-- file's writer.
insert into millrace_operations (tenant, name, kind, holds, options, requested_at) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (tenant, name) where ended_at is null do nothing
returning id
