-- Returns where the tail of tenant $1 begins: the highest position that a partition has handled, which is settled, and
-- the highest visible position, both from one snapshot. It follows begin_read.sql in one message. Index:
-- projections_tenant_name_partition_key, events_pkey. Locks nothing.
select coalesce((select max(greatest(l.checkpoint, (select max(u.position) from unnest(p.passed_upto) as u(position))))
                   from {control}.leases l join {control}.projections p on p.id = l.id
                  where p.tenant = $1::text), 0),
       coalesce((select max(global_seq) from {tenant}.events), 0)
