-- Returns whether tenant $1 is paused. Index: that of tenants by name. Locks nothing.
select paused from {control}.tenants where {tenant_name} = $1::text
