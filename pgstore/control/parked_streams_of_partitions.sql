-- Returns the parked streams of the partitions $1. Index: parked_streams_pkey. Locks nothing.
select s.stream_id from {control}.parked_streams s where s.projection_id = any($1::integer[])
