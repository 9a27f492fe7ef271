-- Reserves ids of the table ?1 for rows whose ids are from ?2 to ?3, and returns what must be added to these: 0 if no such id was given yet.
-- If the table never had a row, it returns nothing. It scans a table that has a row for each table. Lock: that of the file's writer.
-- Needs no index.
update sqlite_sequence set seq = ?3 + max(0, seq - ?2 + 1) where name = 'millrace_' || ?1 returning seq - ?3
