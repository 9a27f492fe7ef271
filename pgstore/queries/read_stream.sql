-- Events of the stream $1 from the version $2 on. $3 limit, $4 after this position. Within a stream positions rise with
-- versions, so this is global order too. Index: the one on events by stream and version, which rows are compared with so
-- that it is read in its order; otherwise the planner may sort the rest of a long stream for every page.
-- Locks nothing.
select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at
from {tenant}.events where (stream_id, stream_version) >= ($1, $2) and (stream_id, stream_version) <= ($1, 9223372036854775807)
and global_seq > $4 order by stream_id, stream_version limit $3
