-- Carries out a command that calls no handler, if no living node holds the projection: a discard, or a replay that only has
-- to end. It raises the epoch of the lease, so that no node that believes to hold it can commit. Indexes: leases_pkey,
-- nodes_pkey, commands_pkey, and those of the functions. Locks, until the commit: the row of leases FOR NO KEY UPDATE, and
-- those of the functions.
with free as (
    select l.id, c.id as command, c.kind from {control}.leases l
      join {control}.commands c on c.id = $2::bigint and c.projection_id = l.id and (c.kind = 'discard' or c.done + c.failed >= c.most)
     where l.id = $1::integer
       and (l.owner is null or not exists (select from {control}.nodes n where n.id = l.owner and n.expires_at > clock_timestamp()))
       for no key update of l
), taken as (
    update {control}.leases l set epoch = l.epoch + 1 from free where l.id = free.id
    returning l.id, free.command, free.kind
)
select case when taken.kind = 'discard' then {control}.discard(taken.id, taken.command) else {control}.end_replay(taken.id, taken.command) end
  from taken
