-- Raises the epoch of lease ?1 if its owner is not the living node ?3, and if command ?2 of its projection calls no
-- handler: a discard, or a replay that is at its limit. After that no node that believes it owns the lease can commit.
-- Indexes: the primary keys of leases and commands. Lock: that of the file's writer.
update millrace_leases set epoch = epoch + 1
where id = ?1 and (owner is null or owner <> ?3)
and exists (select 1 from millrace_commands c
             where c.id = ?2 and c.projection = ?1 and (c.kind = 'discard' or c.done + c.failed >= c.max_events))
