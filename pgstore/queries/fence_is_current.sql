-- Returns whether the functions of the fence have at least version $2, that of fence_functions.sql, and whether the role
-- may replace them. A newer program may have added functions of the same names. With quote_all_identifiers, types are
-- quoted. Locks nothing. Indexes: those of the catalog.
select count(*) = 2 and bool_and(substring(p.prosrc from 'Version of the fence: ([0-9]+)')::integer >= $2::text::integer) is true,
       coalesce(bool_and(pg_has_role(p.proowner, 'usage') and has_schema_privilege(n.oid, 'create')), false)
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
 where n.nspname = $1::text
   and (p.proname, replace(pg_catalog.oidvectortypes(p.proargtypes), '"', '')) in (
       ('check_lease', 'integer, uuid, bigint, bigint'),
       ('advance', 'text, integer, uuid, bigint, bigint, bigint, bigint'))
