-- Returns the objects of schema $1 that have one of the names $2. It returns none if the schema is that of a store,
-- which shows by the columns of its table schema_versions. Locks nothing. Indexes: those of the catalog.
select o.name
  from pg_catalog.pg_namespace n
  cross join lateral (select c.relname::text as name from pg_catalog.pg_class c where c.relnamespace = n.oid
                      union select p.proname::text from pg_catalog.pg_proc p where p.pronamespace = n.oid) o
 where n.nspname = $1::text and o.name = any($2::text[])
   and not exists (select from pg_catalog.pg_class c
                    where c.relnamespace = n.oid and c.relname = 'schema_versions' and c.relkind = 'r'
                      and (select array_agg(a.attname::text order by a.attname::text) from pg_catalog.pg_attribute a
                            where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) = '{applied_at,name,version}')
 order by o.name
