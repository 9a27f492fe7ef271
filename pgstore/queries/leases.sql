-- Leases and what belongs to them, by their rows. After a claim it is read once the rows are locked: what the previous owner
-- wrote until then counts. "offset 0" keeps projections from being read as a whole, "limit 1" keeps parked_streams from
-- being read from its beginning where most of it is another projection's. Locks nothing. Indexes: leases_pkey,
-- projections_pkey, parked_streams_pkey, commands_projection_id_id_idx.
select l.id, p.tenant, p.name, p.partition, coalesce(l.owner::text, ''), l.epoch, l.checkpoint, l.unclean, p.wanted, p.attempts,
       p.failing_position, coalesce(p.last_error, ''), coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed end, ''), p.halted,
       coalesce(case when p.deaths > 0 then p.trying_since end, p.failing_since),
       p.trying_position, p.deaths, p.parked,
       (select true from {control}.parked_streams s where s.projection_id = l.id order by s.stream_id limit 1) is not null,
       exists (select from {control}.commands c where c.projection_id = l.id and c.ended_at is null)
  from {control}.leases l cross join lateral (select * from {control}.projections p where p.id = l.id offset 0) p
 where l.id = any($1::integer[])
