-- The fence of a batch that is one message: moves the checkpoint of a lease, or raises. $1 is the name of the batch, $2 to $5 are the row,
-- owner, epoch and incarnation of the lease, $6 and $7 the old and the new checkpoint. Index and lock: those of advance.
select {control}.advance($1::text, $2::integer, $3::uuid, $4::bigint, $5::bigint, $6::bigint, $7::bigint)
