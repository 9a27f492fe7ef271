-- Returns the parked streams of the partitions $1. Index: parked_streams_pkey. Locks nothing.
select stream_id from {control}.parked_streams where {projection} {in $1::integer[]}
