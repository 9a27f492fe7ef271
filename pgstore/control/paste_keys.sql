-- Inserts the rows $2 of copy_keys.sql into tenant $1. Indexes: tenants_pkey, append_keys_pkey, append_results_pkey. Locks: the new rows.
with r as (
    select r.* from {control}.tenants t
     cross join json_to_recordset($2::json) as r (key text, stream text, first bigint, last bigint, at bigint) where t.tenant = $1::text
), keys as (
    insert into {tenant}.append_keys (key, stream_id, created_at)
    select r.key, r.stream, timestamptz 'epoch' + r.at * interval '1 microsecond' from r
)
insert into {tenant}.append_results (key, first_version, last_version) select r.key, r.first, r.last from r
