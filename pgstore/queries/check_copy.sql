-- Reports whether tenant $1 is being copied by copy $2. Lock: the tenant's row FOR KEY SHARE until the commit. Index:
-- tenants_pkey.
select true from {control}.tenants where tenant = $1::text and copy = $2::uuid and state = 'copying' for key share
