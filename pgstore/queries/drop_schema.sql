-- Drops the schema of a tenant with everything in it and all that depends on it. Locks: ACCESS EXCLUSIVE on each table
-- until the commit. Needs no index.
drop schema if exists {tenant} cascade
