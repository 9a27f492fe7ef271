-- Returns the idempotency keys after key $1, at most $2, in order. The columns are those of transfer.Keys. With a plain
-- join, the planner would read all results before the first key for each page. Locks nothing. Indexes: append_keys_pkey,
-- append_results_pkey.
select k.key, k.stream_id, r.first_version, r.last_version, (extract(epoch from k.created_at) * 1000000)::bigint
  from (select key, stream_id, created_at from {tenant}.append_keys where key > $1::text order by key limit $2::bigint) k
  left join lateral (select first_version, last_version from {tenant}.append_results where key = k.key offset 0) r on true
 order by k.key
