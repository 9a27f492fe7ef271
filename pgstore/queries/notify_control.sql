-- Tells the owners of a tenant's projections that a wanted state changed, when the transaction commits. $1 channel, $2
-- tenant. Locks: the queue of notifications during the commit. Needs no index.
select pg_notify($1, $2)
