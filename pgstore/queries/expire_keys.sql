-- The part of append_keyed.sql that deletes up to 64 idempotency keys older than {retention}. An append deletes keys
-- only after it has claimed its own: it then waits for no key, so that two appends that delete each other's keys
-- cannot deadlock. At a higher isolation level, a key that another transaction deleted would be an error, so nothing
-- is deleted there. Results are found by an array of keys: a join may read all results for each key. Locks: the
-- deleted rows until the transaction ends; locked rows are skipped. Indexes: append_keys_created_at_idx,
-- append_keys_pkey, append_results_pkey.
, expired as (
delete from {tenant}.append_keys k where k.key = any (array(
select o.key from {tenant}.append_keys o where o.created_at < statement_timestamp() - {retention}
and exists (select from claim) and current_setting('transaction_isolation') = 'read committed'
order by o.created_at limit 64 for update skip locked))
returning k.key
), expired_results as (
delete from {tenant}.append_results r where r.key = any (array(select e.key from expired e))
)
