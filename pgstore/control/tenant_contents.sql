-- Returns what tenant $1 has of events, streams, idempotency keys, aliases, projections and retired names. Locks nothing. Indexes: that by
-- tenant, otherwise the first row of a table.
select array_remove(array[
       case when exists (select from {tenant}.events) then 'events' end,
       case when exists (select from {tenant}.streams) then 'streams' end,
       case when exists (select from {tenant}.append_keys) then 'idempotency keys' end,
       case when exists (select from {control}.aliases a where a.tenant = $1::text) then 'aliases' end,
       case when exists (select from {control}.projections p where p.tenant = $1::text) then 'projections' end,
       case when exists (select from {control}.retired_projections x where x.tenant = $1::text) then 'retired projections' end], null)
