-- Creates the schema {schema}, the control schema or that of a tenant. Lock: the migration lock is held. Needs no
-- index.
create schema {schema}
