-- Returns where the tail of tenant $1 begins: the highest position that a partition has handled, which is settled, and
-- the highest visible position, both from one snapshot. It follows begin_read.sql in one message. "offset 0" keeps
-- the planner from a join of all leases. Indexes: projections_tenant_name_partition_key, leases_pkey, events_pkey. Locks nothing.
select coalesce((select max(greatest(l.checkpoint, (select max(u.position) from unnest(p.passed_upto) as u(position))))
                   from {control}.projections p
                  cross join lateral (select l.checkpoint from {control}.leases l where l.id = p.id offset 0) l
                  where p.tenant = $1::text), 0),
       coalesce((select max(global_seq) from {tenant}.events), 0)
