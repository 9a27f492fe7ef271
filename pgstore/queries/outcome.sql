-- What came of a command, whose it is, and whether it can be carried out without a handler. Index: commands_pkey. Locks nothing.
select c.ended_at is not null, c.done, c.failed, c.projection_id, c.kind = 'discard' or c.done + c.failed >= c.most from {control}.commands c
 where c.id = $1::bigint
   and c.projection_id = (select p.id from {control}.projections p where p.tenant = $2::text and p.name = $3::text and p.partition = $4::integer)
