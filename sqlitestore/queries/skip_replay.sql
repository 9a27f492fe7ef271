-- Discards dead letter ?2 of projection ?1 at ?3 after a failed replay, as its handler requested, and returns its stream.
-- ?4 error, ?5 stack, ?6 attempt. Index: the primary key. Lock: that of the file's writer.
update millrace_dead_letters
set state = 'discarded', blocked_by_stream = 0, open_replays = 0, replays = replays + 1, attempts = ?6,
    error = ?4, stack = ?5, last_failed_at = ?3, ended_at = ?3
where id = ?2 and projection = ?1 and state = 'replaying' returning stream_id
