-- Deletes the parked streams of the projections $1. Index: parked_streams_pkey. Locks: the rows.
delete from {control}.parked_streams where {projection} {in $1::integer[]}
