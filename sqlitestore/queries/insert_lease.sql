-- Inserts the free lease of the projection ?1 with the checkpoint ?2. ?3 crash_count, ?4 the time. Index: the primary key.
-- Lock: that of the file's writer.
insert into millrace_leases (id, checkpoint, crash_count, free_since) values (?1, ?2, ?3, ?4)
