-- Returns the nodes with what they register, and whether each is alive. It scans nodes. Needs no index, locks nothing.
select id::text, name, expires_at > clock_timestamp(), projections, tenants, filtered, filters from {control}.nodes
