-- Records a migration of the control schema. $1 version, $2 name. Lock: the migration lock is held. Index:
-- schema_versions_pkey.
insert into {control}.schema_versions (version, name) values ($1, $2)
