-- Reports whether schema $1 has the table $2. Locks nothing. Indexes: those of the catalogs.
select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = $1::text and c.relname = $2::text and c.relkind in ('r', 'p'))
