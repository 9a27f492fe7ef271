-- Releases those of the streams $2 of projection $1 that have no parked events. Indexes: parked_streams_pkey, that of
-- dead_letters by stream, as in release_stream_of.sql. Locks: the rows FOR UPDATE until the commit.
delete from {control}.parked_streams as s
 where s.{projection} = $1::integer and s.stream_id {in $2::text[]}
   and (select d.stream_id from {control}.dead_letters d
         where d.{projection} = $1::integer and d.stream_id = s.stream_id and d.state in ('parked', 'replaying') limit 1) is null
