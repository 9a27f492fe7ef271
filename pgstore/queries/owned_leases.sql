-- Returns all leases that node $1 holds. Locks nothing. Indexes: leases_owner_idx, or a scan of leases if the node
-- holds most of them, and those of lease_columns.sql.
select {lease}
  from {control}.leases l join {control}.projections p on p.id = l.id
 where l.owner = $1::uuid
