-- Deletes the record of the copy of the file. Lock: that of the file's writer. Index: none, the table has one row.
delete from millrace_copy
