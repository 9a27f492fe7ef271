-- Returns the lowest and the highest id of a command that rows of tenant $1 have, and the same of dead letters, 0 if there is none. Rows may
-- have ids of commands and dead letters that were deleted. Indexes: projections_tenant_name_partition_key, and of each other table that by
-- projection. Locks nothing.
with p as (select id from {control}.projections where tenant = {tenant_id $1::text}),
commands as (
    select c.id from {control}.commands c where c.{projection} in (select id from p)
     union all select d.last_command from {control}.dead_letters d where d.{projection} in (select id from p)
     union all select s.last_command from {control}.parked_streams s where s.{projection} in (select id from p)),
letters as (
    select d.id from {control}.dead_letters d where d.{projection} in (select id from p)
     union all select c.current_dead_letter from {control}.commands c where c.{projection} in (select id from p))
select (select coalesce(min(id), 0) from commands where id > 0), (select coalesce(max(id), 0) from commands),
       (select coalesce(min(id), 0) from letters), (select coalesce(max(id), 0) from letters)
