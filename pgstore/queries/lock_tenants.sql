-- Takes the structural lock of the tenants $1, in a statement of its own. Locks: those of the function. Index:
-- tenants_pkey.
select {control}.lock_tenants($1::text[])
