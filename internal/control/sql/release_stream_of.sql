-- Releases the stream of dead letter $2 of projection $1 if it has no parked events. "not exists" would become a
-- join, which may read all parked events of the projection. Indexes: dead_letters_pkey, parked_streams_pkey, that of dead_letters
-- by stream, which alone has all that is needed. Locks: the row FOR UPDATE until the commit.
delete from {control}.parked_streams as s
 where s.{projection} = $1::integer and s.stream_id = (select x.stream_id from {control}.dead_letters x where x.id = $2::bigint)
   and (select d.stream_id from {control}.dead_letters d
         where d.{projection} = $1::integer and d.stream_id = s.stream_id and d.state in ('parked', 'replaying') limit 1) is null
