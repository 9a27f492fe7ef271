-- Makes the schema {schema}: the control schema or a tenant's. Lock: the migration lock is held. Needs no index.
create schema {schema}
