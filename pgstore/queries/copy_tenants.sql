-- Lists the tenants of copy $1. It scans tenants. Locks nothing. Index: none.
select tenant from {control}.tenants where copy = $1::uuid order by tenant
