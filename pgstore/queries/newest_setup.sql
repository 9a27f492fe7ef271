-- The most steps of the user's setup that a tenant has had. It reads all of tenants, and needs no index. Locks nothing.
select coalesce(max(setup), 0) from {control}.tenants
