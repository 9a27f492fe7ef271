-- Events in global order. $1 after, $2 up to, $3 limit. Index: events_pkey. Locks nothing. The columns are those of
-- readEnvelopes. The upper bound is written as a comparison of rows, because the planner takes two plain bounds for a
-- narrow range where the table was not analysed lately, and then sorts all that is left of the table for every page.
select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at
from {tenant}.events where global_seq > $1 and (global_seq, 0) <= ($2, 0) order by global_seq limit $3
