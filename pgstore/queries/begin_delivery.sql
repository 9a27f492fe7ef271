-- Reports whether a lease is still held at the expected checkpoint, and returns the token of its projection. It
-- raises in another incarnation. A delivery has no other fence. $1 lease, $2 owner, $3 epoch, $4 checkpoint, $5
-- incarnation. Indexes: leases_pkey (as in fence_functions.sql), projections_pkey. Locks nothing.
select {control}.check_incarnation($5::bigint), exists (select from {control}.leases l
                where l.id = $1::integer and coalesce(l.owner = $2::uuid, false) and l.epoch = $3::bigint and l.checkpoint = $4::bigint),
       coalesce((select p.token::text from {control}.projections p where p.id = $1::integer), '')
