-- Raises MR001 unless owner $2 holds lease $1 under epoch $3, and MR004 unless incarnation $4 lasts. Locks nothing. Index: leases_pkey.
select {control}.check_lease($1::integer, $2::uuid, $3::bigint, $4::bigint)
