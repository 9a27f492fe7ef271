-- Makes a command that replays dead letter $4 next, unless there is an open command. Returns a row if it does. $5 bounds how
-- much of its stream. Commands that ended a day ago are forgotten. Indexes: leases_pkey, dead_letters_pkey, the partial ones
-- of commands. Locks: the new row, and the row of leases FOR SHARE until the commit.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint
       and not exists (select from {control}.commands c where c.projection_id = l.id and c.ended_at is null)
       for share
), forgotten as (
    delete from {control}.commands c
     where c.id in (select o.id from {control}.commands o, held
                     where o.projection_id = held.id and o.ended_at < clock_timestamp() - interval '1 day' limit 1000)
)
insert into {control}.commands (projection_id, kind, letters, most)
select held.id, 'replay', array[d.id], $5::bigint
  from held join {control}.dead_letters d on d.projection_id = held.id and d.id = $4::bigint and d.state in ('parked', 'replaying')
