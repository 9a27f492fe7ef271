-- Inserts an operation on a projection, unless it has an open one, and notifies the nodes over channel $6. It deletes
-- operations on the projection that ended a day ago. $1 tenant, whose structural lock the caller holds, $2 projection, $3
-- kind, $4 names of the projections to hold, $5 options. Indexes: operations_open_idx,
-- operations_tenant_name_ended_at_idx. Locks: the new row, and the queue of notifications during the commit.
with deleted as (
    delete from {control}.operations
     where tenant = $1::text and name = $2::text and ended_at < clock_timestamp() - interval '1 day'
), inserted as (
    insert into {control}.operations (tenant, name, kind, holds, options)
    values ($1::text, $2::text, $3::text, $4::text[], $5::text)
    on conflict (tenant, name) where ended_at is null do nothing
    returning id
)
select id, pg_notify($6::text, 'operations') from inserted
