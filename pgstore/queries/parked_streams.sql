-- Which of these streams are parked. Index: parked_streams_pkey. Locks nothing.
select s.stream_id from {control}.parked_streams s where s.projection_id = $1::integer and s.stream_id = any($2::text[])
