-- Returns "ok", or the first faults of the file. It reads the whole file. Locks it for reading. Needs no index.
pragma quick_check(10)
