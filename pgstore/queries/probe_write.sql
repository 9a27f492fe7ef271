-- Updates the row of probe, which a standby and a read-only session refuse. Index: none, the table has one row. Lock:
-- that row FOR NO KEY UPDATE until the commit.
update {control}.probe set probed_at = clock_timestamp()
