-- Releases the streams of the partitions $1 that have no parked events any more. Indexes: parked_streams_pkey, that of dead_letters by
-- stream. Locks: the rows FOR UPDATE until the commit.
delete from {control}.parked_streams as s
 where s.{projection} {in $1::integer[]}
   and not exists (select 1 from {control}.dead_letters d
                    where d.{projection} = s.{projection} and d.stream_id = s.stream_id and d.state in ('parked', 'replaying'))
