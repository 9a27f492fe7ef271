-- Reserves ids for copy $1, unless it has some: $2 projections, $3 dead letters and $4 commands. They follow the ids that
-- were drawn, or begin at 1 if the table is empty. $5 to $7 are the sequences. The tables of lock_id_tables.sql are
-- locked, so no id is drawn meanwhile. Indexes: copies_pkey, otherwise the first row of a table. Locks: the row of copies.
with drawn as materialized (
    select (select case when is_called then last_value else 0 end from {projections}) as p,
           (select case when is_called then last_value else 0 end from {dead_letters}) as d,
           (select case when is_called then last_value else 0 end from {commands}) as k
), added as materialized (
    select drawn.*, case when exists (select from {control}.projections) then p else 0 end as projection_ids,
           case when exists (select from {control}.dead_letters) then d else 0 end as dead_letter_ids,
           case when exists (select from {control}.commands) then k else 0 end as command_ids
      from drawn
)
update {control}.copies c set projection_ids = a.projection_ids, dead_letter_ids = a.dead_letter_ids, command_ids = a.command_ids
  from added a
 where c.id = $1::uuid and c.projection_ids is null
returning case when $2::bigint > 0 then setval($5::text::regclass, greatest(a.p, a.projection_ids + $2::bigint)) end,
          case when $3::bigint > 0 then setval($6::text::regclass, greatest(a.d, a.dead_letter_ids + $3::bigint)) end,
          case when $4::bigint > 0 then setval($7::text::regclass, greatest(a.k, a.command_ids + $4::bigint)) end
