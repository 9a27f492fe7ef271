-- read_stream.sql for the types $5 only. Index: that of events by stream and version. Locks nothing. "coalesce" keeps
-- the planner from estimating how rare the types are: without statistics its estimate was so low that it scanned a
-- table of ten million events.
select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at
from {tenant}.events where (stream_id, stream_version) >= ($1, $2) and (stream_id, stream_version) <= ($1, 9223372036854775807)
and global_seq > $4 and coalesce(type = any ($5::text[]), false) order by stream_id, stream_version limit $3
