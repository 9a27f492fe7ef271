-- Whether a lease is still held, and its checkpoint where its holder believes it to be: what is delivered has no fence of its
-- own. Index: leases_pkey. Locks nothing.
select {control}.check_incarnation($5::bigint), exists (select from {control}.leases l
                where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint and l.checkpoint = $4::bigint)
