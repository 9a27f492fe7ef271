-- Moves the write-ahead log into the file and truncates it. Waits 200 ms for older reads, not longer, since transactions wait meanwhile.
-- Then sets the time of waits back to busyTimeout. Locks: those of the file's writer and of its readers. Needs no index.
pragma busy_timeout = 200;
pragma wal_checkpoint(truncate);
pragma busy_timeout = 5
