-- Returns whether tenant $1 is suspended, and whether living and dead nodes have leases of it. Indexes: tenants_pkey,
-- projections_tenant_name_partition_key, leases_pkey (see tail_start.sql), nodes_pkey. Locks nothing.
select t.state <> 'active' or t.paused, coalesce(l.living, false), coalesce(l.dead, false)
  from {control}.tenants t cross join lateral (
       select bool_or(n.id is not null) as living, bool_or(n.id is null) filter (where l.owner is not null) as dead
         from {control}.projections p cross join lateral (select l.owner from {control}.leases l where l.id = p.id offset 0) l
         left join {control}.nodes n on n.id = l.owner and n.expires_at > clock_timestamp()
        where p.tenant = t.tenant) l
 where t.tenant = $1::text
