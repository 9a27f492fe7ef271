-- Returns the copy of tenant $1, which is locked, and its source, or empty texts. Locks nothing. Indexes: tenants_pkey,
-- copies_pkey.
select coalesce(t.copy::text, ''), coalesce(c.source, '') from {control}.tenants t left join {control}.copies c on c.id = t.copy
 where t.tenant = $1::text
