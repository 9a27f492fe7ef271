-- Returns the parked streams of projection $1, $2 at most. Index: parked_streams_pkey. Locks nothing.
select stream_id from {control}.parked_streams where {projection} = $1::integer order by stream_id limit $2::integer
