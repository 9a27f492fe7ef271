-- Whether there is a schema of that name. Index: that of the catalog. Locks nothing.
select exists (select from pg_catalog.pg_namespace where nspname = $1)
