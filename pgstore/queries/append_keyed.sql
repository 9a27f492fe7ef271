-- append.sql with an idempotency key, $7, which it claims before it changes the stream's row. It returns no row if
-- the key was used before. A conflict raises MR003, which undoes the claim. Of several appends with one key, the
-- others wait until the first ends. {expire} is empty or expire_keys.sql, {returned} as in append.sql. Locks: the
-- key's index entry until the transaction ends, then as append.sql. Indexes: append_keys_pkey, streams_pkey.
with claim as (
insert into {tenant}.append_keys (key, stream_id) values ($7, $1) on conflict (key) do nothing returning key
), stream as (
{stream}
), result as (
insert into {tenant}.append_results (key, first_version, last_version)
select $7, version - {count} + 1, version from stream
)
{expire}
insert into {tenant}.events (stream_id, stream_version, type, body, headers, causation_id, correlation_id{created_at})
select $1::text, coalesce(s.version, {control}.raise_version_conflict()) - {count} + e.n, e.type, e.body::jsonb,
nullif(e.headers, '')::jsonb, nullif(e.causation, ''), nullif(e.correlation, ''){time}
from claim left join stream s on true, {events}
returning global_seq, stream_version{returned}
