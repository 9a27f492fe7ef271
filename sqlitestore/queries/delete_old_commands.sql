-- Deletes at most 1,000 commands of projection ?1 that ended before ?2. Rows of a command that is open for another
-- partition stay, since its result is the sum of all rows. Indexes: those of commands. Lock: that of the file's writer.
delete from millrace_commands where id in (
    select o.id from millrace_commands o
    where o.projection = ?1 and o.ended_at < ?2
    and not exists (select 1 from millrace_commands x where x.id = o.root and x.ended_at is null)
    and not exists (select 1 from millrace_commands x where x.root = coalesce(o.root, o.id) and x.ended_at is null)
    limit 1000)
