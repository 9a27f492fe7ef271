-- Lets the ranges that projections of tenant $1 have passed, and their rebuilds, end at $2, its last event. Index:
-- projections_tenant_name_partition_key. Locks: the rows FOR NO KEY UPDATE until the commit.
update {control}.projections p
   set passed_upto = array(select least(u.position, $2::bigint) from unnest(p.passed_upto) with ordinality as u(position, place) order by u.place),
       rebuild_to = least(p.rebuild_to, $2::bigint)
 where p.tenant = $1::text
