-- Returns the tables named $2, in the control schema $1 and in its tenants' schemas, of which row-level security may hide
-- rows from the current role, sorted. For each right that the role has to read, update or delete rows, a table needs a
-- permissive policy without a condition, and no restrictive policy. A refused insert names its table. Locks nothing.
-- Indexes: those of the catalog.
select c.oid::regclass::text
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where c.relrowsecurity and c.relname = any($2::text[]) and (n.nspname = $1::text or starts_with(n.nspname::text, $1::text || '_'))
   and row_security_active(c.oid)
   and (exists (select from pg_catalog.pg_policy p where p.polrelid = c.oid and not p.polpermissive)
        or exists (select from (values ('select', 'r'), ('update', 'w'), ('delete', 'd')) needed (privilege, command)
                    where has_table_privilege(c.oid, needed.privilege)
                      and not exists (select from pg_catalog.pg_policy p
                                       where p.polrelid = c.oid and p.polcmd::text in ('*', needed.command)
                                         and coalesce(pg_get_expr(p.polqual, p.polrelid), 'true') = 'true'
                                         and exists (select from unnest(p.polroles) r where r = 0 or pg_has_role(r, 'usage')))))
 order by 1
