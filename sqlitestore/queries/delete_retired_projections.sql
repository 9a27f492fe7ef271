-- Deletes up to ?2 retired names of the tenant number ?1. Lock: that of the file's writer. Index: the primary key.
delete from millrace_retired_projections where (tenant, name) in
(select tenant, name from millrace_retired_projections where tenant = ?1 limit ?2)
