-- Returns the sequences of positions in the schemas $1 whose last number is below a checkpoint of their tenant, quoted.
-- It leaves out sequences whose last number the role may not see. Logical replication may leave such a sequence, and so
-- may a restore, setval, or a position that was inserted by hand. Locks nothing. Reads all checkpoints. Indexes:
-- tenants_pkey, leases_pkey, those of the catalog.
select c.oid::regclass::text
  from {control}.tenants t
  join pg_catalog.pg_namespace n on n.nspname = t.schema_name
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relkind = 'S' and c.relname = 'events_global_seq_seq'
 where n.nspname = any($1::text[])
   and case when pg_catalog.has_sequence_privilege(c.oid, 'usage, select')
            then coalesce(pg_catalog.pg_sequence_last_value(c.oid), 0) end
       < (select max(l.checkpoint)
            from {control}.projections p join {control}.leases l on l.id = p.id
           where p.tenant = t.tenant)
 order by 1
