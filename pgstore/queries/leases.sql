-- Returns the leases $1. After a claim it runs while the rows are locked, so that it sees all that the previous owner
-- wrote. "offset 0" prevents a scan of projections. Locks nothing. Indexes: leases_pkey, projections_pkey, and those
-- of lease_columns.sql.
select {lease}
  from {control}.leases l cross join lateral (select * from {control}.projections p where p.id = l.id offset 0) p
 where l.id = any($1::integer[])
