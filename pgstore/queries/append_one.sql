-- Part of append.sql and append_keyed.sql: the event of an append that has only one, without the cost of arrays. Locks
-- nothing. Needs no index.
(values ($2::text, $3::text, $4::text, $5::text, $6::text, 1)) as e (type, body, headers, causation, correlation, n)
