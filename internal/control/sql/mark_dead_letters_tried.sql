-- Marks the dead letters of the partition $1 that the replay $2 has tried as tried by the replay $3. Index:
-- dead_letters_projection_id_position_key. Locks: the rows, which the transaction has changed.
update {control}.dead_letters set last_command = $3::bigint where {projection} = $1::integer and last_command = $2::bigint
