-- Deletes a node. If it still holds leases, it is marked dead instead, because its row shows since when they have had
-- no owner. $1 node. Indexes: nodes_pkey, leases_owner_idx. Locks: the node's row.
with marked_dead as (
    update {control}.nodes n set expires_at = n.heartbeat_at
     where n.id = $1::uuid and exists (select from {control}.leases l where l.owner = n.id)
)
delete from {control}.nodes n where n.id = $1::uuid and not exists (select from {control}.leases l where l.owner = n.id)
