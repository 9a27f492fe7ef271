-- Deletes all notices but the newest ?1. Index: the primary key. Locks: the file has one writer.
delete from millrace_notices where id <= (select max(id) from millrace_notices) - ?1
