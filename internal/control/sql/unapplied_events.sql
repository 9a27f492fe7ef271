-- Returns the dead letters of tenant $1 at the positions $2 whose events were not applied: the rows of their projections, and the
-- positions. Indexes: that of projections by tenant, name and partition, that of dead letters by projection and position. Locks nothing.
select d.{projection}, d.position from {control}.projections p join {control}.dead_letters d on d.{projection} = p.id
 where p.tenant = {tenant_id $1::text} and d.position {in $2::bigint[]} and d.state in ('parked', 'replaying', 'discarded')
