-- A part of missing_projections.sql and ensure_projections.sql: reports whether the tenant of r has a version of the
-- projection r.renamed_from. Index: projections_tenant_name_partition_key. Locks nothing.
(r.renamed_from <> '' and exists (
       select from {control}.projections o
        where o.tenant = r.tenant and o.name >= r.renamed_from and o.name < r.renamed_from || 'A'
          and (o.name = r.renamed_from or left(o.name, length(r.renamed_from) + 1) = r.renamed_from || '@'
               and ltrim(substr(o.name, length(r.renamed_from) + 2), '0123456789') = '')))
