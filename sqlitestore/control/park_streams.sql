-- Parks the streams ?2 (JSON) for projection ?1. Lock: that of the file's writer. Index: the primary key.
insert into millrace_parked_streams (projection, stream_id) select ?1, value from json_each(?2) where true
on conflict (projection, stream_id) do nothing
