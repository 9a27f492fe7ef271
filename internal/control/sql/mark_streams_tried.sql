-- Marks the parked streams of the partition $1 that the replay $2 has tried as tried by the replay $3. Index: parked_streams_pkey.
-- Locks: the rows, which the transaction has changed.
update {control}.parked_streams set last_command = $3::bigint where {projection} = $1::integer and last_command = $2::bigint
