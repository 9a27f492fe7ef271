-- Part of append.sql and append_keyed.sql: the events of an append, in order. Locks nothing. Needs no index.
unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) with ordinality as e (type, body, headers, causation, correlation, n)
order by e.n
