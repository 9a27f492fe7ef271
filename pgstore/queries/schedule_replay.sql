-- Inserts a command that replays dead letter $4, unless there is an open command, under the fence. It returns a row
-- if it did. $1 lease, $2 owner, $3 epoch, $5 the limit for its stream. It deletes commands that ended a day ago.
-- Indexes: leases_pkey, dead_letters_pkey, those of commands. Locks: the new row, and the row of leases
-- FOR SHARE until the commit.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint
       and not exists (select from {control}.commands c where c.projection_id = l.id and c.ended_at is null)
       for share
), deleted as (
    delete from {control}.commands c
     where c.id in (select o.id from held p cross join lateral ({old_commands}) o)
)
insert into {control}.commands (projection_id, kind, dead_letter_ids, max_events)
select held.id, 'replay', array[d.id], $5::bigint
  from held join {control}.dead_letters d on d.projection_id = held.id and d.id = $4::bigint and d.state in ('parked', 'replaying')
