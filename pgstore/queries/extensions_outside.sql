-- Returns the extensions with objects outside the schemas $1, and the schemas of those objects. The first column
-- reports whether they include types or operators: without these, a statement may have another meaning and no error
-- (citext = citext then compares as text). It reads all members of extensions. Indexes: those of the catalogs. Locks
-- nothing.
select bool_or(p.oid is null), e.extname, n.nspname
  from pg_catalog.pg_extension e
  join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_extension'::regclass and d.refobjid = e.oid and d.deptype = 'e'
  left join pg_catalog.pg_type t on d.classid = 'pg_catalog.pg_type'::regclass and t.oid = d.objid
  left join pg_catalog.pg_operator o on d.classid = 'pg_catalog.pg_operator'::regclass and o.oid = d.objid
  left join pg_catalog.pg_proc p on d.classid = 'pg_catalog.pg_proc'::regclass and p.oid = d.objid
  join pg_catalog.pg_namespace n on n.oid = coalesce(t.typnamespace, o.oprnamespace, p.pronamespace)
 where n.nspname <> 'pg_catalog' and n.nspname <> all($1::text[])
 group by e.extname, n.nspname order by n.nspname, e.extname
