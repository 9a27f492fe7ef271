-- Locks lease $1, whoever owns it, and waits for a claim of it in progress. Index: leases_pkey. Lock: the row of leases FOR SHARE,
-- until the commit.
select from {control}.leases where id = $1::integer for share
