-- Updates the row of probe, which a file that cannot be written to refuses. Lock: that of the file's writer. Index: none, the
-- table has one row.
update millrace_probe set probes = probes + 1
