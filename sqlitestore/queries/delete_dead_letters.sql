-- Deletes up to ?2 dead letters of the tenant number ?1. Lock: that of the file's writer. Indexes: that of projections by
-- tenant, that of dead letters by projection, and the primary key.
delete from millrace_dead_letters where id in
(select d.id from millrace_projections p join millrace_dead_letters d on d.projection = p.id where p.tenant = ?1 limit ?2)
