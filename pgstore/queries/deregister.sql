-- Takes the node off the list. One that still holds leases is buried instead, so that it is known since when nobody has had
-- them. Indexes: nodes_pkey, leases_owner_idx. Locks: the node's row.
with buried as (
    update {control}.nodes n set expires_at = n.heartbeat_at
     where n.id = $1::uuid and exists (select from {control}.leases l where l.owner = n.id)
)
delete from {control}.nodes n where n.id = $1::uuid and not exists (select from {control}.leases l where l.owner = n.id)
