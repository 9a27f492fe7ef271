-- Deletes up to ?2 commands of the tenant number ?1. Lock: that of the file's writer. Indexes: that of projections by
-- tenant, those of commands by projection, and the primary key.
delete from millrace_commands where id in
(select c.id from millrace_projections p join millrace_commands c on c.projection = p.id where p.tenant = ?1 limit ?2)
