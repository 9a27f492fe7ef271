-- Returns no rows for tenant ?1: in a file, no table belongs to one tenant. In PostgreSQL it returns the tables in the tenant's schema.
-- Locks nothing. Needs no index.
select ?1 limit 0
