-- Writes why the last try of an operation failed, and lets its projections run until the next one. $1 operation, $2 epoch, $3
-- error. If $3 is null, its node does not carry it out any more, and another one may take it. Channel $4 notifies the nodes.
-- Indexes: operations_pkey, and those of the function. Locks, until the commit: the row FOR NO KEY UPDATE, and those of the
-- function.
with noted as (
    update {control}.operations set error = coalesce($3::text, error), node = case when $3::text is not null then node end
     where id = $1::bigint and epoch = $2::bigint and ended_at is null
    returning id
)
select {control}.release_holds(noted.id, $4::text), case when $3::text is null then pg_notify($4::text, 'operations') end from noted
