-- Records that tenant $1 is at version $2. Lock: the migration lock is held, and the row FOR NO KEY UPDATE until the
-- commit. Index: tenants_pkey.
update {control}.tenants set version = $2 where tenant = $1
