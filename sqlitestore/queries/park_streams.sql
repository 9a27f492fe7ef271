-- Parks the streams of the events in ?2 for projection ?1. ?2 is as in park_events.sql. Lock: that of the file's writer. Index:
-- the primary key.
insert into millrace_parked_streams (projection, stream_id) select ?1, value ->> 1 from json_each(?2) where true
on conflict (projection, stream_id) do nothing
