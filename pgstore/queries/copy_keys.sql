-- Inserts idempotency keys with their ages. $1 to $5 are the columns of transfer.Keys. Indexes: append_keys_pkey,
-- append_results_pkey. Locks: the new rows.
with k as (
    select * from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) as k (key, stream_id, first_version, last_version, created_at)
), keys as (
    insert into {tenant}.append_keys (key, stream_id, created_at)
    select k.key, k.stream_id, timestamptz 'epoch' + k.created_at * interval '1 microsecond' from k
)
insert into {tenant}.append_results (key, first_version, last_version) select k.key, k.first_version, k.last_version from k
