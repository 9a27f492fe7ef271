-- Moves those of the parked streams $2 that are in the partitions $1 to the partition $3. Index: parked_streams_pkey. Locks: the rows
-- FOR UPDATE until the commit, and the row of the partition FOR KEY SHARE, which the caller has inserted.
update {control}.parked_streams set {projection} = $3::integer where {projection} {in $1::integer[]} and stream_id {in $2::text[]}
