-- Deletes the operations on projection ?2 of the tenant number ?1 that ended before ?3. Index: that of ended operations.
-- Lock: that of the file's writer.
delete from millrace_operations where tenant = ?1 and name = ?2 and ended_at < ?3
