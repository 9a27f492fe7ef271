-- Creates the table of the migrations that were applied to the control schema, before the first of them. Lock: the
-- migration lock is held. Needs no index.
create table if not exists {control}.schema_versions (
version integer primary key,
name text not null,
applied_at timestamptz not null default clock_timestamp()
)
