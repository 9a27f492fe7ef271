-- Returns the first parked event of stream $2 of projection $1. Index: that of dead_letters by stream. Locks nothing.
select d.id, d.position from {control}.dead_letters d
 where d.{projection} = $1::integer and d.stream_id = $2::text and d.state in ('parked', 'replaying') order by d.position limit 1
