-- Reports whether projection $1 has an open command, and whether its dead letter $2 is parked. Indexes:
-- commands_projection_id_id_idx, dead_letters_pkey. Locks nothing.
select exists (select 1 from {control}.commands c where c.{projection} = $1::integer and c.ended_at is null),
       exists (select 1 from {control}.dead_letters d where d.id = $2::bigint and d.{projection} = $1::integer and d.state in ('parked', 'replaying'))
