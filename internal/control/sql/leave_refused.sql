-- Records that command $1 left a dead letter whose replay it refused, and the stream of it. All dead letters up to position $2 were tried.
-- Index: commands_pkey. Locks: the row, which the caller has locked.
update {control}.commands set current_stream = null, current_dead_letter = null, after_position = $2::bigint where id = $1::bigint
