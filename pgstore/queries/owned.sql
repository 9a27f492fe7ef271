-- All leases that a node holds. Locks nothing. Indexes: leases_owner_idx, or all of leases where the node holds most, and those
-- of lease_columns.sql.
select {lease}
  from {control}.leases l join {control}.projections p on p.id = l.id
 where l.owner = $1::uuid
