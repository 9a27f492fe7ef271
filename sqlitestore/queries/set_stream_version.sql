-- Sets the version of a stream, and inserts the stream if it is new. Lock: that of the file's writer. Index: the
-- primary key.
insert into millrace_streams (tenant, stream_id, version) values (?1, ?2, ?3)
on conflict (tenant, stream_id) do update set version = excluded.version
