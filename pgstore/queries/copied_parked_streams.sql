-- Returns the parked streams of tenant $1 after projection $2 and stream $3, at most $4, in order. The columns are those
-- of transfer.ParkedStreams. {projection_ids} and {command_ids} are what the copy added to ids. Locks nothing. Indexes:
-- projections_tenant_name_partition_key, parked_streams_pkey.
select s.projection_id - {projection_ids}::bigint, s.stream_id, case when s.last_command = 0 then 0 else s.last_command - {command_ids} end
  from {control}.parked_streams s
 where s.projection_id in (select p.id from {control}.projections p where p.tenant = $1::text)
   and (s.projection_id, s.stream_id) > ($2::bigint + {projection_ids}, $3::text)
 order by s.projection_id, s.stream_id limit $4::bigint
