-- Returns the privileges on objects of the schemas $1 that the current role needs and lacks, at most 20. The first schema
-- is the control schema. Appends of events need no right to change them, and only the owner changes tenants,
-- versions, erasures and moves. Locks nothing. Indexes: those of the catalog.
select * from (
    select 'usage on schema ' || quote_ident(n.nspname)
      from pg_catalog.pg_namespace n
     where n.nspname = any($1::text[]) and not has_schema_privilege(n.oid, 'usage')
    union all
    select p.privilege || ' on ' || c.oid::regclass::text
      from pg_catalog.pg_namespace n
      join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p')
     cross join (values ('select'), ('insert'), ('update'), ('delete')) p (privilege)
     where n.nspname = any($1::text[]) and not has_table_privilege(c.oid, p.privilege)
       and not (p.privilege <> 'select' and n.nspname = ($1::text[])[1] and c.relname in ('tenants', 'schema_versions', 'erasures', 'moves'))
       and not (p.privilege in ('update', 'delete') and n.nspname <> ($1::text[])[1] and c.relname = 'events')
       and (n.nspname = ($1::text[])[1] or c.relname = any($2::text[]))
    union all
    select 'execute on function ' || f.oid::regprocedure::text
      from pg_catalog.pg_namespace n
      join pg_catalog.pg_proc f on f.pronamespace = n.oid
     where n.nspname = ($1::text[])[1] and not has_function_privilege(f.oid, 'execute')
) lacking (privilege)
 order by privilege not like 'usage on schema%', privilege limit 20
