-- Makes the projections $3 of tenant $2 that operation $1 names stand still for it, unless another operation holds one of
-- them, and returns the rows that it holds now. The caller holds the structural lock of the tenant. Indexes:
-- operations_pkey, projections_tenant_name_partition_key. Locks: the rows FOR NO KEY UPDATE until the commit.
update {control}.projections
   set held_by = $1::bigint
 where tenant = {tenant_id $2::text} and name {in $3::text[]} and held_by is null
   and name {in (select o.holds from {control}.operations o where o.id = $1::bigint)::text[]}
   and not exists (select 1 from {control}.projections x
                    where x.tenant = {tenant_id $2::text} and x.name {in $3::text[]} and x.held_by <> $1::bigint
                      and x.name {in (select o.holds from {control}.operations o where o.id = $1::bigint)::text[]})
returning id
