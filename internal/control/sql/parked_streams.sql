-- Returns which of the streams $2 are parked for projection $1. Index: parked_streams_pkey. Locks nothing.
select stream_id from {control}.parked_streams where {projection} = $1::integer and stream_id {in $2::text[]}
