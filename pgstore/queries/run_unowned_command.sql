-- Runs a command that calls no handler (a discard, or a replay that is at its limit) if no living node holds the
-- lease. It raises the lease's epoch, so that no node that believes it owns the lease can commit. $1 lease, $2
-- command. Indexes: leases_pkey, nodes_pkey, commands_pkey, and those of the functions. Locks, until the commit: the
-- row of leases FOR NO KEY UPDATE, and those of the functions.
with free as (
    select l.id, c.id as command, c.kind from {control}.leases l
      join {control}.commands c on c.id = $2::bigint and c.projection_id = l.id
                              and (c.kind = 'discard' or c.done + c.failed >= c.max_events)
     where l.id = $1::integer
       and (l.owner is null or not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()))
       for no key update of l
), fenced as (
    update {control}.leases l set epoch = l.epoch + 1 from free where l.id = free.id
    returning l.id, free.command, free.kind
)
select case when f.kind = 'discard' then {control}.discard(f.id, f.command) else {control}.end_replay(f.id, f.command) end
  from fenced f
