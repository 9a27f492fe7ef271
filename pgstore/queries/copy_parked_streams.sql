-- Inserts parked streams. $1 to $3 are the columns of transfer.ParkedStreams. {projection_ids} and {command_ids} are
-- added to the ids of the source. Index: parked_streams_pkey. Locks: the new rows, and their projections FOR KEY SHARE.
insert into {control}.parked_streams (projection_id, stream_id, last_command)
select r.projection + {projection_ids}, r.stream_id, case when r.last_command = 0 then 0 else r.last_command + {command_ids} end
  from unnest($1::bigint[], $2::text[], $3::bigint[]) as r (projection, stream_id, last_command)
