-- Records the end of erasure $1: how many events it redacted, $2, the types $3 of the events, and the projections $4 that have applied
-- some, and $5 that have delivered some. Index: erasures_pkey. Lock: the row.
update {control}.erasures set ended_at = {now}, events = $2::bigint, types = $3::text[], applied = $4::text[], delivered = $5::text[]
 where id = $1::bigint
returning ended_at
