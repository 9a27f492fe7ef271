-- Returns the sequences of positions in the schemas $1 that give out more than one number at a time, quoted. Locks
-- nothing. Indexes: those of the catalog.
select c.oid::regclass::text
  from pg_catalog.pg_namespace n
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relkind = 'S' and c.relname = 'events_global_seq_seq'
  join pg_catalog.pg_sequence s on s.seqrelid = c.oid
 where n.nspname = any($1::text[]) and s.seqcache <> 1
 order by 1
