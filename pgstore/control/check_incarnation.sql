-- Raises MR004 unless the server is in the incarnation $1. Locks nothing. Needs no index.
select {control}.check_incarnation($1::bigint)
