-- Notifies other processes over channel $1 that the tenants $2 have new events. It commits asynchronously: polls find
-- what a lost notification would have announced, and a flush would only delay the batch that applies the same events.
-- Locks: PostgreSQL's lock on notifying commits, until the commit. No index.
select set_config('synchronous_commit', 'off', true), pg_notify($1::text, t) from unnest($2::text[]) as t
