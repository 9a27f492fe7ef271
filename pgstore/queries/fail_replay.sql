-- Parks a dead letter again after its replay failed, under the fence. The command continues without the rest of its
-- stream. $1 lease, $2 owner, $3 epoch, $4 dead letter, $5 command, $6 error, $7 stack, $8 attempt (0: not counted).
-- If $9 is not null, it is why the projection stops until it is resumed, and the command ends. Indexes: leases_pkey,
-- dead_letters_pkey, commands_pkey, projections_pkey. Locks, until the commit: the row of leases FOR SHARE, which
-- claims wait for or skip (see halt.sql); the others FOR NO KEY UPDATE.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint for share
), counted as (
    update {control}.commands c set failed = c.failed + 1, current_stream = null, current_dead_letter = null,
           max_events = case when $9::text is null then c.max_events else c.done + c.failed + 1 end
      from held where c.id = $5::bigint
), halted as (
    update {control}.projections p set failed_reason = $9::text, halted = true from held where p.id = held.id and $9::text is not null
)
update {control}.dead_letters d
   set state = 'parked', blocked_by_stream = false, open_replays = 0,
       replays = d.replays + ($8::integer > 0)::integer, attempts = greatest(d.attempts, $8::integer),
       error = $6::text, stack = $7::text, last_failed_at = clock_timestamp()
  from held
 where d.id = $4::bigint and d.projection_id = held.id and d.state = 'replaying'
