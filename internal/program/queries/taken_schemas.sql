-- Those of these schemas that are there, whoever made them.
select array(select nspname::text from pg_catalog.pg_namespace where nspname = any ($1::text[]) order by 1)
