-- Locks the partitions of the projections $2 of tenant $1 and returns those of projection $4, with their checkpoints and epochs. free
-- reports whether operation $3 holds them and none has an owner. Locks, until the commit: the rows of projections and
-- leases FOR UPDATE, in order of their ids. Indexes: projections_tenant_name_partition_key, leases_pkey.
with locked as materialized (
    select p.id, p.name, l.checkpoint, l.epoch, coalesce(p.held_by = $3::bigint, false) and l.owner is null as free
      from {control}.projections p join {control}.leases l on l.id = p.id
     where p.tenant = $1::text and p.name = any($2::text[])
     order by p.id
       for update of p, l
)
select k.id, k.checkpoint, k.epoch, (select bool_and(free) from locked) from locked k where k.name = $4::text
