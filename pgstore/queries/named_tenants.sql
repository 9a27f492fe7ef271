-- Whether there are tenants beside $1. It reads tenants until it finds one. Index: none. Locks nothing.
select exists (select from {control}.tenants where tenant <> $1)
