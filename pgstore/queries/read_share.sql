-- read_tail.sql for one partition: the slots from $4 to $5, exclusive, and the types $6 (none: all). Index:
-- events_pkey; there is no index on slot, since a partition has events in every page of the table. Locks nothing.
-- "offset 0" as in read_range.sql.
select global_seq, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at from (
select global_seq, slot, stream_id, stream_version, type, body, headers, causation_id, correlation_id, created_at
from {tenant}.events where global_seq > $1 and (global_seq, 0) <= ($2, 0) order by global_seq offset 0
) e where slot >= $4 and slot < $5 and (cardinality($6::text[]) = 0 or type = any ($6::text[])) limit $3
