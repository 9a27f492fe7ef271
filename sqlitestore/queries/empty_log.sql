-- Moves the write-ahead log into the file and truncates it. Returns whether another connection prevented that, the pages of the log, and
-- those that were moved. Locks: those of the file's writer and of its readers. Needs no index.
pragma wal_checkpoint(truncate)
