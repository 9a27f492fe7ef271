-- Ends what close_tenant.sql began. It disables the trigger, since dropping it would wait for reads. Lock: SHARE ROW
-- EXCLUSIVE on events until the commit. Needs no index.
create or replace trigger millrace_closed before insert on {tenant}.events
    for each statement execute function {control}.refuse_append('MR007');
alter table {tenant}.events disable trigger millrace_closed
