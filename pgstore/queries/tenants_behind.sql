-- The next tenants after $3 that Migrate has to look at: those that are older than $1, those that are too new, and those
-- that had fewer than $2 steps of the user's setup. Index: tenants_pkey. Locks nothing.
select tenant from {control}.tenants
 where tenant > $3 and (version < $1 or version > $1 + 1 or setup < $2)
 order by tenant limit 1000
