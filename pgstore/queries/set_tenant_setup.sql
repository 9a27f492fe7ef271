-- Records how many steps of the user's setup a tenant has had. Lock: the migration lock is held, and the row FOR NO KEY
-- UPDATE until the commit. Index: tenants_pkey.
update {control}.tenants set setup = $2 where tenant = $1
