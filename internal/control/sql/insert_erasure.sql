-- Records an erasure in tenant $1, of the stream $2 or of the events at the positions $3, for the reason $4, and returns its number and
-- the time. Needs no index, locks nothing.
insert into {control}.erasures (tenant, stream_id, positions, reason, requested_at)
select {tenant_id $1::text}, $2::text, $3::bigint[], $4::text, {now}
returning id, requested_at
