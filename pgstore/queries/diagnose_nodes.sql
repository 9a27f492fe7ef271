-- Returns the number of living nodes. Locks nothing. Index: nodes_pkey is not needed, the table is small.
select count(*)::integer from {control}.nodes where expires_at > clock_timestamp()
