-- Deletes the parked streams of the projections ?1, a JSON array. Index: the primary key. Lock: that of the file's writer.
delete from millrace_parked_streams where projection in (select value from json_each(?1))
