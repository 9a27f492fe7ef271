-- What came of a command. Index: commands_pkey. Locks nothing.
select c.ended_at is not null, c.done, c.failed from {control}.commands c where c.id = $1::bigint
