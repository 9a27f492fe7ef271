-- Lowers checkpoints of tenant $1 above $2, its last event, to it. Indexes: projections_tenant_name_partition_key, leases_pkey. Locks: the
-- rows FOR NO KEY UPDATE until the commit.
update {control}.leases set checkpoint = $2::bigint
 where checkpoint > $2::bigint and id in (select p.id from {control}.projections p where p.tenant = {tenant_id $1::text})
