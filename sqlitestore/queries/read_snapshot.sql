-- Returns of the snapshots of stream ?2 of tenant number ?1 the generation, the version, the position, the time, and the state, which is null unless the snapshot has
-- the fingerprint ?3, is of a version after ?4, and its event is at its position and has its time. Indexes: the primary key of snapshots,
-- that of events by stream and version. Locks nothing.
select s.generation, s.version, s.position, coalesce(s.event_time, 0), case when e.id is not null then s.state end
from millrace_snapshots s
left join millrace_events e on e.tenant = s.tenant and e.stream_id = s.stream_id and e.version = s.version
     and e.position = s.position and e.created_at = s.event_time and s.fingerprint = ?3 and s.version > ?4
where s.tenant = ?1 and s.stream_id = ?2
