-- Returns the quoted names of the tables in schema $1 that belong to a role of this session. Locks nothing. Indexes:
-- those of the catalogs.
select format('%I.%I', n.nspname, c.relname)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = $1::text and c.relkind in ('r', 'p') and pg_has_role(c.relowner, 'usage')
 order by 1
