-- Returns which of the streams $2 are parked for projection $1. Each is looked up: of a table that was nearly empty when it was
-- analyzed, the planner would read all streams of the projection. "exists" would become a join, which does that too. Index: parked_streams_pkey. Locks nothing.
select list.value from {rows $2::text[]}
 where (select count(*) from {control}.parked_streams s where s.{projection} = $1::integer and s.stream_id = list.value) > 0
