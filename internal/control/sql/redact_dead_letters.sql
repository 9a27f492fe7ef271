-- Replaces the errors of the dead letters of tenant $1 at the positions $2 by the text $3. Indexes: that of projections by tenant, name
-- and partition, that of dead letters by projection and position. Locks: the rows.
update {control}.dead_letters set error = $3::text, stack = ''
 where {projection} in (select id from {control}.projections where tenant = {tenant_id $1::text}) and position {in $2::bigint[]}
