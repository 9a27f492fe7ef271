-- Returns what a migration of schema $1 needs, and whether the role has it: the right to create schemas in the
-- database; to use the schema (null if it does not exist); to create in it; and one table in it that another role
-- owns, with that role. Locks nothing. Indexes: those of the catalog.
select current_user::text, current_database()::text, has_database_privilege(current_database(), 'create'),
       has_schema_privilege(n.oid, 'usage'), coalesce(has_schema_privilege(n.oid, 'create'), false),
       coalesce(c.relname::text, ''), coalesce(pg_get_userbyid(c.relowner)::text, '')
  from (select $1::text as name) asked
  left join pg_catalog.pg_namespace n on n.nspname = asked.name
  left join lateral (select relname, relowner from pg_catalog.pg_class c
                      where c.relnamespace = n.oid and c.relkind in ('r', 'p') and not pg_has_role(c.relowner, 'usage')
                      order by relname limit 1) c on true
