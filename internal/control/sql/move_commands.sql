-- Moves the commands of the partitions $1 to the partition $2, and ends the open ones. New rows continue them: see
-- continue_replay.sql. Their results stay. Indexes: those of commands by partition. Locks: the rows FOR UPDATE until
-- the commit.
update {control}.commands
   set {projection} = $2::integer, ended_at = coalesce(ended_at, {now}), current_dead_letter = null, current_stream = null
 where {projection} {in $1::integer[]}
