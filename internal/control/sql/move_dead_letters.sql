-- Moves the dead letters $1 to the partition $2. Index: dead_letters_pkey. Locks: the rows FOR UPDATE until the commit, and the row of
-- the partition FOR KEY SHARE, which the caller has inserted.
update {control}.dead_letters set {projection} = $2::integer where id {in $1::bigint[]}
