-- Inserts the leases of the projections whose ids are above ?1. ?2 is the time. Index: the primary keys. Locks: the file
-- has one writer.
insert into millrace_leases (id, free_since) select id, ?2 from millrace_projections where id > ?1
