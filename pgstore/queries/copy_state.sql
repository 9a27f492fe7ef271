-- Returns what copy $1 added to ids, and whether it is verified, has opened tenants, and has ended. Locks nothing. Index:
-- copies_pkey.
select coalesce(projection_ids, 0), coalesce(dead_letter_ids, 0), coalesce(command_ids, 0), verified_at is not null, opened_at is not null, ended_at is not null
  from {control}.copies where id = $1::uuid
