-- read_tail.sql for the types $4 only. Index: events_pkey. Locks nothing. "offset 0" keeps the planner from
-- estimating how rare the types are: if it believed them to be very rare, it would sort the rest of the table for
-- every page.
select * from (
select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at
from {tenant}.events where global_seq > $1 and (global_seq, 0) <= ($2, 0) order by global_seq offset 0
) e where type = any ($4::text[]) limit $3
