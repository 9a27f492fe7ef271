-- Returns the result of command $1 so far, its projection, and whether it can run without a handler. $2 tenant, $3
-- projection, $4 partition. Index: commands_pkey. Locks nothing.
select c.ended_at is not null, c.done, c.failed, c.projection_id, c.kind = 'discard' or c.done + c.failed >= c.max_events
  from {control}.commands c
 where c.id = $1::bigint
   and c.projection_id = (select p.id from {control}.projections p
                          where p.tenant = $2::text and p.name = $3::text and p.partition = $4::integer)
