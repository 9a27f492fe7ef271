-- Releases the streams of the partitions ?1 (JSON) that have no parked events any more. Indexes: the primary key, and that of parked
-- events by stream. Lock: that of the file's writer.
delete from millrace_parked_streams
where projection in (select value from json_each(?1))
and not exists (select 1 from millrace_dead_letters d
                where d.projection = millrace_parked_streams.projection and d.stream_id = millrace_parked_streams.stream_id
                  and d.state in ('parked', 'replaying'))
