-- Ends a command. One that is in the middle of a parked stream is ended by whoever carries it out, as at its limit. Index:
-- commands_pkey. Locks: its row until the commit.
update {control}.commands c set most = c.done + c.failed, ended_at = case when c.stream is null then clock_timestamp() end
 where c.id = $4::bigint and c.ended_at is null
   and c.projection_id = (select p.id from {control}.projections p where p.tenant = $1::text and p.name = $2::text and p.partition = $3::integer)
