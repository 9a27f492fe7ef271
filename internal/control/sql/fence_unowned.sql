-- Raises the epoch of lease $1 if no living node holds it, and if command $2 of its projection calls no handler: a discard,
-- or a replay that is at its limit. Returns the kind of the command. After that no node that believes it owns the lease
-- can commit. Indexes: leases_pkey, nodes_pkey, commands_pkey. Locks: the row of leases FOR NO KEY UPDATE until the commit.
update {control}.leases as l set epoch = l.epoch + 1
 where l.id = $1::integer and not {living l.owner}
   and exists (select 1 from {control}.commands c
                where c.id = $2::bigint and c.{projection} = $1::integer and (c.kind = 'discard' or c.done + c.failed >= c.max_events))
returning (select c.kind from {control}.commands c where c.id = $2::bigint)
