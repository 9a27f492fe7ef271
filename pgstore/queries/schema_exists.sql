-- Reports whether the schema $1 exists. Index: that of the catalog. Locks nothing.
select exists (select from pg_catalog.pg_namespace where nspname = $1)
