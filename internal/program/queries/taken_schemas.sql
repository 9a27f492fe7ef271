-- Which of these schemas exist.
select array(select nspname::text from pg_catalog.pg_namespace where nspname = any ($1::text[]) order by 1)
