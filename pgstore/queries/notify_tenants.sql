-- Notifies the nodes over channel $1 that the tenants $2 changed. Lock: the queue of notifications during the commit. Needs
-- no index.
select pg_notify($1::text, 'tenant ' || t.tenant) from unnest($2::text[]) as t (tenant)
