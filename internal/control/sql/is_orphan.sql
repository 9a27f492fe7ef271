-- Returns the open operation $1 if its node is dead. Indexes: operations_pkey, nodes_pkey. Locks nothing.
select o.id from {control}.operations o where o.id = $1::bigint and o.ended_at is null and not {living o.node}
