-- Lets the projections that operation $1 holds run again, and returns their rows. Indexes: operations_pkey,
-- projections_tenant_name_partition_key. Locks: the rows of the projections FOR NO KEY UPDATE until the commit.
update {control}.projections
   set held_by = null
 where tenant = (select o.tenant from {control}.operations o where o.id = $1::bigint)
   and name {in (select o.holds from {control}.operations o where o.id = $1::bigint)::text[]} and held_by = $1::bigint
returning id
