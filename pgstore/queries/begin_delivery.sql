-- Whether a lease is still held with its checkpoint where the holder expects it, and the token of its projection. A delivery has
-- no fence of its own. Indexes: leases_pkey, projections_pkey. Locks nothing.
select {control}.check_incarnation($5::bigint), exists (select from {control}.leases l
                where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint and l.checkpoint = $4::bigint),
       coalesce((select p.token::text from {control}.projections p where p.id = $1::integer), '')
