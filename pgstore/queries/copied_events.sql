-- Returns the events after position $1, at most $2, in order. The columns are those of transfer.Events. Locks nothing.
-- Index: events_pkey.
select global_seq, slot::bigint, stream_id, stream_version, type, body::text, headers::text, causation_id, correlation_id,
       (extract(epoch from created_at) * 1000000)::bigint
  from {tenant}.events where global_seq > $1::bigint order by global_seq limit $2::bigint
