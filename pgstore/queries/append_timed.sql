-- Part of append.sql and append_keyed.sql: the events of an append that has times, {times}, in order. A null time is that of the statement. Locks
-- nothing. Needs no index.
unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], {times}::timestamptz[]) with ordinality as e (type, body, headers, causation, correlation, at, n)
order by e.n
