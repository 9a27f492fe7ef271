-- Returns the aliases of tenant $1 after name $2, at most $3, in order. The columns are those of transfer.Aliases. Locks nothing.
-- Index: aliases_pkey.
select a.name, a.stream_id, (extract(epoch from a.created_at) * 1000000)::bigint
  from {control}.aliases a
 where a.tenant = $1::text and a.name > $2::text order by a.name limit $3::bigint
