-- Frees the leases ?1, a JSON array, and raises their epochs, so that previous owners cannot commit. Those in ?2, a JSON
-- array, have dead owners, and count as crashed. Index: the primary key. Lock: that of the file's writer.
update millrace_leases
set epoch = epoch + 1, free_since = case when owner is null then free_since else :now end, owner = null,
    crash_count = crash_count + (id in (select value from json_each(?2)))
where id in (select value from json_each(?1))
