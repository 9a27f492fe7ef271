-- Reports whether there are tenants other than $1. It scans tenants until it finds one. Index: none. Locks nothing.
select exists (select from {control}.tenants where tenant <> $1)
