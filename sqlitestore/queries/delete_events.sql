-- Deletes up to ?2 events of the tenant number ?1. Lock: that of the file's writer. Index: the primary key.
delete from millrace_events where id in (select id from millrace_events where id > ?1 << 40 and id < (?1 + 1) << 40 limit ?2)
