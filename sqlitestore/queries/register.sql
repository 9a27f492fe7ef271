-- Registers the node that owns the file, or registers it again. The summary of a new node says that it runs nothing. ?1
-- node, ?2 projections, ?3 tenants, ?4 filters, ?5 the time, ?6 name. Index: the primary key. Locks: the file has one
-- writer.
insert into millrace_nodes (id, name, projections, tenants, filters, started_at, summary) values (?1, ?6, ?2, ?3, ?4, ?5, '{}')
on conflict (id) do nothing
