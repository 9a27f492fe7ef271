-- Lets one process after another look whether the table of erasures exists, and create it. Lock: SHARE ROW EXCLUSIVE on tenants, which the
-- foreign key of the table needs as well. Needs no index.
lock table {control}.tenants in share row exclusive mode
