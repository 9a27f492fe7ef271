-- Counts the parked dead letters of projection $1 whose events failed. It reads as many entries as it counts. Index: that of failed
-- dead_letters. Locks nothing.
select count(*) from {control}.dead_letters
 where projection_id = $1::integer and state in ('parked', 'replaying') and not blocked_by_stream
