-- Returns the row that counts what command $1 refused of stream $2, or the last of these rows if there are $3 already. Such a row is no part
-- of the command: max_events is -1, and failed counts the refused dead letters. Index: commands_root_idx. Locks nothing; the caller has
-- locked the first row of the command.
select coalesce((select r.id from {control}.commands r where r.root = $1::bigint and r.max_events = -1 and r.stream_id = $2::text),
                (select case when count(*) >= $3::integer then max(r.id) else 0 end
                   from {control}.commands r where r.root = $1::bigint and r.max_events = -1))
