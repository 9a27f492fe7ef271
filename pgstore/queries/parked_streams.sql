-- Returns those of the streams $2 that are parked for projection $1. Index: parked_streams_pkey. Locks nothing.
select s.stream_id from {control}.parked_streams s where s.projection_id = $1::integer and s.stream_id = any($2::text[])
