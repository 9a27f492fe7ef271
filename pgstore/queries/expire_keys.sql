-- The part of append_keyed.sql that deletes idempotency keys older than {retention}, a few at a time. Only an append that has
-- claimed its key does so: it then waits for no key any more, so that appends that delete each other's keys cannot deadlock. In
-- a transaction of a higher isolation level a key that another one deleted would be an error. Locks: the deleted rows until the
-- transaction ends; those that are locked are left to others. Indexes: append_keys_created_at_idx, append_keys_pkey,
-- append_results_pkey.
, expired as (
delete from {tenant}.append_keys k where k.key = any (array(
select o.key from {tenant}.append_keys o where o.created_at < statement_timestamp() - {retention}
and exists (select from claim) and current_setting('transaction_isolation') = 'read committed'
order by o.created_at limit 64 for update skip locked))
returning k.key
), expired_results as (
delete from {tenant}.append_results r using expired e where r.key = e.key
)
