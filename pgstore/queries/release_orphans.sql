-- Lets the projections of operation $1 run again if its node is dead, and notifies the nodes over channel $2. The operation
-- stays open, and the next node holds them again. Indexes: operations_pkey, nodes_pkey, and those of the function. Locks:
-- those of the function.
select {control}.release_holds(o.id, $2::text)
  from {control}.operations o
 where o.id = $1::bigint and o.ended_at is null
   and not exists (select from {control}.nodes n where n.id = o.node and n.expires_at > clock_timestamp())
