-- Tenants that Migrate has to look at: those that are older than $1, and those that are too new. It reads all
-- of tenants, and needs no index. Locks nothing.
select tenant from {control}.tenants where version < $1 or version > $1 + 1 order by tenant
