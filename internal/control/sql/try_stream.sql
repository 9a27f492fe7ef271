-- Records that command $3 tries the parked stream $2 of projection $1. Index: parked_streams_pkey. Locks: the row FOR NO
-- KEY UPDATE until the commit.
update {control}.parked_streams set last_command = $3::bigint where {projection} = $1::integer and stream_id = $2::text
