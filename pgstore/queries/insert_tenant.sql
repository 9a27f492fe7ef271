-- A tenant that has nothing yet. Lock: the migration lock is held. Index: tenants_pkey.
insert into {control}.tenants (tenant, schema_name, version) values ($1, $2, 0)
