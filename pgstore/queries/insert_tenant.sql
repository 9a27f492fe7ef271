-- Inserts a tenant with no migrations applied. $1 tenant, $2 schema. Lock: the migration lock is held. Index:
-- tenants_pkey.
insert into {control}.tenants (tenant, schema_name, version) values ($1, $2, 0)
