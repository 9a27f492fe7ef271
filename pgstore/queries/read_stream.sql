-- Returns events of the stream $1 from version $2 on and after position $4, at most $3. Positions rise with versions
-- within a stream, so this is global order too. Index: that of events by stream and version. The bounds are row
-- comparisons, so that it is read in order: otherwise the planner may sort the rest of a long stream for every page.
-- Locks nothing.
select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at
from {tenant}.events where (stream_id, stream_version) >= ($1, $2) and (stream_id, stream_version) <= ($1, 9223372036854775807)
and global_seq > $4 order by stream_id, stream_version limit $3
