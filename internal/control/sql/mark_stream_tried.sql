-- Marks the parked stream $2 of the partition $1, if the replay $3 has tried it, as tried by the replay $4. Index: parked_streams_pkey.
-- Lock: the row, which the transaction has changed.
update {control}.parked_streams set last_command = $4::bigint where {projection} = $1::integer and stream_id = $2::text and last_command = $3::bigint
