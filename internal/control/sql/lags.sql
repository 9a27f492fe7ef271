-- Returns the projections of some tenants that a filter selects, those furthest behind first, with their states as in projections.sql.
-- $1 is a JSON array of objects with a tenant and the head of its events. $2 names, $3 states, $4 owner. A state need not match if the
-- owner is $5, or if the projection is one of $6, a JSON array of objects with tenant, name and partition. $7 whether with parked
-- events, $8 to $11 how far the last projection of the previous page is behind and its ID, $12 limit, $13 how far they are behind at least. Null means any. It reads the
-- rows of these tenants, and sorts them. Indexes: tenants_pkey, projections_tenant_name_partition_key, leases_pkey, nodes_pkey. Locks nothing.
select x.tenant, x.name, x.partition, x.checkpoint, x.behind, x.state, x.owner
  from (select t.{tenant_name} as tenant, p.name, p.partition, l.checkpoint, coalesce(l.owner::text, '') as owner, p.parked,
               case when (list.value->>'head')::bigint > l.checkpoint then (list.value->>'head')::bigint - l.checkpoint else 0 end as behind,
               case when p.suspended or p.desired_state <> 'run' then 'paused'
                    when p.halted then 'failed'
                    when not {living l.owner} then 'not owned'
                    when p.failed_epoch = l.epoch and p.failed_reason <> '' then 'failed'
                    when p.failing_position <= l.checkpoint then 'elsewhere'
                    when p.missing_object then 'missing object'
                    else 'waiting' end as state
          from {objects $1::jsonb}
         cross join {control}.tenants t
         cross join {control}.projections p
         cross join {control}.leases l
         where t.{tenant_name} = list.value->>'tenant' and p.tenant = {tenant_id t.{tenant_name}} and l.id = p.id) x
 where ($2::text[] is null or x.name {in $2::text[]})
   and ($3::text[] is null or x.state {in $3::text[]} or x.owner = $5::text
        or (x.tenant, x.name, x.partition) in (
           select list.value->>'tenant', list.value->>'name', coalesce((list.value->>'partition')::integer, 0) from {objects $6::jsonb}))
   and ($4::text is null or x.owner = $4::text)
   and (not $7::boolean or x.parked > 0)
   and ($8::bigint is null or x.behind < $8::bigint
        or x.behind = $8::bigint and (x.tenant, x.name, x.partition) > ($9::text, $10::text, $11::integer))
   and x.behind >= $13::bigint
 order by x.behind desc, x.tenant, x.name, x.partition
 limit $12::integer
