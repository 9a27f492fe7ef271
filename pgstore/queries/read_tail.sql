-- Returns events in global order, after position $1 and up to $2, at most $3. The columns are those of
-- wire.ReadEvents. The upper bound is a row comparison: without recent statistics, the planner takes two plain bounds
-- for a narrow range and sorts the rest of the table for every page. Index: events_pkey. Locks nothing.
select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at
from {tenant}.events where global_seq > $1 and (global_seq, 0) <= ($2, 0) order by global_seq limit $3
