-- Ends operation ?1 if it is open, and nothing took it over since epoch ?2. ?3 time, ?4 code and ?5 error, null if it did
-- not fail. Index: the primary key. Lock: that of the file's writer.
update millrace_operations set ended_at = ?3, code = ?4, error = ?5 where id = ?1 and epoch = ?2 and ended_at is null
