-- Ends what close_tenant.sql began. It disables the trigger, since dropping it would wait for reads. Lock: SHARE ROW
-- EXCLUSIVE on events until the commit. Needs no index.
alter table {tenant}.events disable trigger millrace_closed
