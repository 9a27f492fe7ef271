-- Returns what a migration of schema $1 needs, and whether the role has it: the right to create schemas in the
-- database; to use the schema (null if it does not exist); to create in it; and the role that owns the schemas, empty if it
-- is this one, or if there are none: that of a table in the schema, of the schema, or of the control schema $2. The last
-- value reports whether one of the schemas exists. Locks nothing. Indexes: those of the catalog.
select current_user::text, current_database()::text, has_database_privilege(current_database(), 'create'),
       has_schema_privilege(n.oid, 'usage'), coalesce(has_schema_privilege(n.oid, 'create'), false),
       coalesce(pg_get_userbyid(coalesce(c.relowner, case when not pg_has_role(o.owner, 'usage') then o.owner end))::text, ''),
       o.owner is not null
  from (select $1::text as name) asked
  left join pg_catalog.pg_namespace n on n.nspname = asked.name
  left join pg_catalog.pg_namespace control on control.nspname = $2::text
 cross join lateral (select coalesce(n.nspowner, control.nspowner) as owner) o
  left join lateral (select relowner from pg_catalog.pg_class c
                      where c.relnamespace = n.oid and c.relkind in ('r', 'p') and not pg_has_role(c.relowner, 'usage')
                      order by relname limit 1) c on true
