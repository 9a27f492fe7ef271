-- Appends to one stream. It changes the stream's row before it draws positions, so that positions rise with versions
-- and a conflict draws none. On a conflict it returns no row. {stream} is append_any.sql, append_new.sql or
-- append_exact.sql, {events} append_one.sql, append_many.sql or append_timed.sql, {created_at} and {time} empty or the column and the value
-- for the latter, {count} the number of events, and {returned} empty, append_durable.sql or append_own.sql. $1 stream; $2 to $6 types, bodies, headers, causation and correlation ids
-- (empty: none), arrays in the other two. Locks: ROW EXCLUSIVE on events from the start of the statement, on which the
-- settled mark depends; the stream's row FOR NO KEY UPDATE. Index: streams_pkey.
with stream as (
{stream}
)
insert into {tenant}.events (stream_id, stream_version, type, body, headers, causation_id, correlation_id{created_at})
select $1::text, s.version - {count} + e.n, e.type, e.body::jsonb, nullif(e.headers, '')::jsonb,
nullif(e.causation, ''), nullif(e.correlation, ''){time}
from stream s, {events}
returning global_seq, stream_version{returned}
