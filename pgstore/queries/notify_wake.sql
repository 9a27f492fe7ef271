-- Tells other processes which tenants have new events. It does not wait for the disk: nothing is lost with it that a poll
-- would not find, and its flush would only hold up the batch that the same events are applied in.
-- Locks: PostgreSQL's lock on commits that notify, until the commit. No index.
select set_config('synchronous_commit', 'off', true), pg_notify($1::text, t) from unnest($2::text[]) as t
