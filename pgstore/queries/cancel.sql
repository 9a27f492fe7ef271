-- Ends a command. Index: commands_pkey. Locks: its row until the commit.
update {control}.commands c set ended_at = clock_timestamp(), stream = null
 where c.id = $4::bigint and c.ended_at is null
   and c.projection_id = (select p.id from {control}.projections p where p.tenant = $1::text and p.name = $2::text and p.partition = $3::integer)
