-- Returns, for each of the tenants $1, the negative of its place in the list, from 1, and the highest position that one of its
-- projections has handled, which is settled. It is the first part of a union; the others are those of heads.sql, so that all
-- positions come from one snapshot. The subquery keeps the planner from a scan of projections. Indexes:
-- projections_tenant_name_partition_key, leases_pkey. Locks nothing.
select -r.place, f.position
  from unnest($1::text[]) with ordinality as r(tenant, place)
 cross join lateral (
       select coalesce(max(greatest(l.checkpoint, (select max(u.position) from unnest(p.passed_upto) as u(position)))), 0) as position
         from {control}.projections p
        cross join lateral (select l.checkpoint from {control}.leases l where l.id = p.id offset 0) l
        where p.tenant = r.tenant) f
