-- Returns the parked streams of the tenant ?1 after projection ?2 and stream ?3, at most ?4, in order. The columns are
-- those of transfer.ParkedStreams. Index: the primary key. Locks nothing.
select projection, stream_id, last_command from millrace_parked_streams
where projection in (select p.id from millrace_projections p where p.tenant = (select id from millrace_tenants where name = ?1))
  and (projection, stream_id) > (?2, ?3) order by projection, stream_id limit ?4
