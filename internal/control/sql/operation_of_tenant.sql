-- Returns the name of the projection of the oldest open operation of tenant $1. It sorts the few that are open. Index: operations_open_idx. Locks nothing.
select o.name from {control}.operations o where o.tenant = {tenant_id $1::text} and o.ended_at is null order by o.id limit 1
