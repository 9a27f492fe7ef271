-- All leases that a node holds. "limit 1" is as in leases.sql. Locks nothing. Indexes: leases_owner_idx, or all of leases where
-- the node holds most; parked_streams_pkey, commands_projection_id_id_idx.
select l.id, p.tenant, p.name, p.partition, l.owner::text, l.epoch, l.checkpoint, l.unclean, p.wanted, p.attempts,
       p.failing_position, coalesce(p.last_error, ''), coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed end, ''), p.halted,
       coalesce(case when p.deaths > 0 then p.trying_since end, p.failing_since),
       p.trying_position, p.deaths, p.parked,
       (select true from {control}.parked_streams s where s.projection_id = l.id order by s.stream_id limit 1) is not null,
       exists (select from {control}.commands c where c.projection_id = l.id and c.ended_at is null)
  from {control}.leases l join {control}.projections p on p.id = l.id
 where l.owner = $1::uuid
