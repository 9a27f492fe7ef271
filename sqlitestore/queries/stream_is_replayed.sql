-- Reports whether stream ?2 of projection ?1 is parked and command ?3 was the last that tried it. Otherwise the stream was
-- released and parked again since. Index: the primary key. Locks nothing.
select exists (select 1 from millrace_parked_streams where projection = ?1 and stream_id = ?2 and last_command = ?3)
