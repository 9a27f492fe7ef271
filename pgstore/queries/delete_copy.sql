-- Deletes copy $1, which has no tenants any more. Lock: the row. Index: copies_pkey.
delete from {control}.copies where id = $1::uuid
