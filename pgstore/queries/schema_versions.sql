-- The versions of the control schema that were applied. Made before the first migration.
-- Lock: the migration lock is held. Needs no index.
create table if not exists {control}.schema_versions (
version integer primary key,
name text not null,
applied_at timestamptz not null default clock_timestamp()
)
