-- A part of missing_projections.sql and ensure_projections.sql: reports whether y retires r.renamed_from, and leads to
-- another projection than r.name. Versions of r.name are the same projection. Index: retired_projections_pkey. Locks nothing.
y.tenant = r.tenant and y.name = r.renamed_from and y.successor is not null
   and regexp_replace(y.successor, '@[0-9]+$', '') <> regexp_replace(r.name, '@[0-9]+$', '')
