-- Updates the row of probe, which fails if the file cannot be written to. It scans the table, which has one row, and
-- needs no index. Lock: that of the file's writer.
update millrace_probe set probes = probes + 1
