-- Parks dead letter ?2 of projection ?1 again after its replay failed at ?3. ?4 error, ?5 stack, ?6 attempt (0: not
-- counted). Index: the primary key. Lock: that of the file's writer.
update millrace_dead_letters
set state = 'parked', blocked_by_stream = 0, open_replays = 0, replays = replays + (?6 > 0), attempts = max(attempts, ?6),
    error = ?4, stack = ?5, last_failed_at = ?3
where id = ?2 and projection = ?1 and state = 'replaying'
