-- Lets one process after another create a table that is not there yet. Lock: SHARE ROW EXCLUSIVE on tenants, which the foreign key of the
-- table needs as well. Needs no index.
lock table {control}.tenants in share row exclusive mode
