-- Returns the highest number of steps of Options.TenantSetup that any tenant has had. It scans tenants, and needs no
-- index. Locks nothing.
select coalesce(max(setup), 0) from {control}.tenants
