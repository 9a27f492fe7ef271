-- Parks a dead letter again whose replay failed, under the fence; $8 is the number of the attempt, 0 if it is not counted. A parked stream goes no
-- further in this command. Where $9 is not null it is why the projection stops until it is resumed, and the command goes no
-- further. Indexes: leases_pkey, dead_letters_pkey, commands_pkey, projections_pkey. Locks, until the commit: the row of
-- leases FOR SHARE, which a claim waits for or passes over (see halt.sql), the others FOR NO KEY UPDATE.
with held as (
    select l.id from {control}.leases l where l.id = $1::integer and l.owner = $2::uuid and l.epoch = $3::bigint for share
), told as (
    update {control}.commands c set failed = c.failed + 1, stream = null, replaying = null,
           most = case when $9::text is null then c.most else c.done + c.failed + 1 end
      from held where c.id = $5::bigint
), halted as (
    update {control}.projections p set failed = $9::text, halted = true from held where p.id = held.id and $9::text is not null
)
update {control}.dead_letters d
   set state = 'parked', behind = false, begun = 0, replays = d.replays + ($8::integer > 0)::integer, attempts = greatest(d.attempts, $8::integer),
       error = $6::text, stack = $7::text, last_failed_at = clock_timestamp()
  from held
 where d.id = $4::bigint and d.projection_id = held.id and d.state = 'replaying'
