-- Returns the position of the first event at or after time $1 among those up to position $2, which are settled, or no row. It
-- follows begin_read.sql in one message. Index: events_pkey, from the beginning, so it reads all events before that one. Locks
-- nothing.
select e.global_seq from {tenant}.events e where e.created_at >= $1::text::timestamptz and e.global_seq <= $2::text::bigint
 order by e.global_seq limit 1
