-- Leases and what belongs to them, by their rows. After a claim it is read once the rows are locked: what the previous owner
-- wrote until then counts. "offset 0" keeps projections from being read as a whole. Locks nothing. Indexes: leases_pkey,
-- projections_pkey, and those of lease_columns.sql.
select {lease}
  from {control}.leases l cross join lateral (select * from {control}.projections p where p.id = l.id offset 0) p
 where l.id = any($1::integer[])
