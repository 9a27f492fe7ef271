-- Returns events of the stream $1 as read_stream.sql does: those after the snapshot of tenant $5 with the fingerprint $6, if it is valid and of
-- a version after $7, and otherwise from version $2 on, at most $3. If the stream has a row of snapshots, that is the first row: its position is the negative one less
-- 1, the headers are the generation, and the causation is the state, null if it is not valid. Indexes: snapshots_pkey, that of events by stream and version. Locks
-- nothing.
with snapshot as materialized (
    select s.generation, e.global_seq, s.version, s.event_time, case when e.global_seq is not null then nullif(s.state, '') end as state
      from {control}.snapshots s
      left join {tenant}.events e on (e.stream_id, e.stream_version) = ($1, s.version)
       and e.global_seq = s.position and e.created_at = s.event_time and s.fingerprint = $6 and s.version > $7
     where s.tenant = $5 and s.stream_id = $1
)
(select -coalesce(global_seq, 0) - 1, $1::text, version, '', null::jsonb, to_jsonb(generation), state, null::text, coalesce(event_time, timestamptz 'epoch')
   from snapshot)
 union all
(select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at
   from {tenant}.events
  where (stream_id, stream_version) >= ($1, coalesce((select version + 1 from snapshot where state is not null), $2)) and (stream_id, stream_version) <= ($1, 9223372036854775807)
    and global_seq > $4 order by stream_id, stream_version limit $3)
