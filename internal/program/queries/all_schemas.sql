-- All schemas except those of PostgreSQL itself.
select coalesce(string_agg(nspname, ', ' order by nspname), '')
  from pg_catalog.pg_namespace
 where nspname !~ '^pg_' and nspname not in ('public', 'information_schema')
