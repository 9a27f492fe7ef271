-- Deletes the dead letters of the projections ?1, a JSON array. Index: that of dead letters by projection. Lock: that of the
-- file's writer.
delete from millrace_dead_letters where projection in (select value from json_each(?1))
