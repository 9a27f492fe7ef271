-- The part of append.sql and append_keyed.sql that returns the events as read_tail.sql does, for a feed in the same
-- process, and the incarnation in which they are committed, 0 if there is none. That is what the function incarnation
-- returns. A call of it takes more than twice as long, and raises if there is none. Locks nothing. Needs no index.
, stream_id, type, body, headers, causation_id, correlation_id, created_at,
coalesce((select i.id # (i.tableoid::bigint << 32) # i.xmin::text::bigint from {control}.incarnation i), 0)
