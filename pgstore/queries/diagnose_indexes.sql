-- Returns the valid indexes of the tables of the schemas $1: schema, table, and the definition. Locks nothing. Indexes:
-- those of the catalog.
select n.nspname::text, c.relname::text, pg_catalog.pg_get_indexdef(i.indexrelid)
  from pg_catalog.pg_namespace n
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p')
  join pg_catalog.pg_index i on i.indrelid = c.oid and i.indisvalid and i.indisready
 where n.nspname = any($1::text[])
