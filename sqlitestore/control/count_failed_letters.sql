-- Counts the parked dead letters of projection ?1 whose events failed. It reads as many entries as it counts. Index: that of failed
-- dead letters. Locks nothing.
select count(*) from millrace_dead_letters
 where projection = ?1 and state in ('parked', 'replaying') and blocked_by_stream = 0
