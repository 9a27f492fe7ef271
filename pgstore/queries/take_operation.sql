-- Makes node $1 carry out the operation $2, if no other living node does. It skips an operation that another node takes
-- at the same time. From then on, nothing that an earlier node does for it can commit. Indexes: operations_pkey,
-- nodes_pkey. Locks: the row FOR NO KEY UPDATE until the commit.
with free as (
    select o.id from {control}.operations o
     where o.id = $2::bigint and o.ended_at is null
       and (o.node is null or o.node = $1::uuid
            or not exists (select from {control}.nodes n where n.id = o.node and n.expires_at > clock_timestamp()))
       for no key update of o skip locked
)
update {control}.operations o set node = $1::uuid, epoch = o.epoch + 1, started_at = coalesce(o.started_at, clock_timestamp())
  from free where o.id = free.id
returning o.id, o.tenant, o.name, o.kind, o.holds, o.options, o.epoch, o.node::text, o.requested_at, o.started_at, o.ended_at,
          coalesce(o.code, ''), coalesce(o.error, ''), clock_timestamp() - o.started_at, o.epoch > 1, transaction_timestamp()
