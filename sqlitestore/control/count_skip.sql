-- Counts a skipped event of projection ?1. Lock: that of the file's writer. Index: the primary key.
update millrace_projections set skipped = skipped + 1 where id = ?1
