-- Reads one lease and what belongs to it. "limit 1" keeps parked_streams from being read from its beginning where most of it is
-- another projection's. Indexes: leases_pkey, projections_pkey, parked_streams_pkey, commands_projection_id_id_idx. Locks nothing.
select l.id, p.tenant, p.name, p.partition, coalesce(l.owner::text, ''), l.epoch, l.checkpoint, l.unclean, p.wanted, p.attempts,
       p.failing_position, coalesce(p.last_error, ''), coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed end, ''), p.halted,
       coalesce(case when p.deaths > 0 then p.trying_since end, p.failing_since),
       p.trying_position, p.deaths, p.parked,
       (select true from {control}.parked_streams s where s.projection_id = l.id order by s.stream_id limit 1) is not null,
       exists (select from {control}.commands c where c.projection_id = l.id and c.ended_at is null)
  from {control}.leases l join {control}.projections p on p.id = l.id
 where l.id = $1::integer
