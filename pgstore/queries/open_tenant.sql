-- Ends what close_tenant.sql began. It disables the trigger, since dropping it would wait for reads. Without an
-- SQLSTATE the trigger refuses nothing, should all triggers of the table be enabled, as pg_restore --disable-triggers
-- does. Lock: SHARE ROW EXCLUSIVE on events until the commit. Needs no index.
create or replace trigger millrace_closed before insert on {tenant}.events
    for each statement execute function {control}.refuse_append('');
alter table {tenant}.events disable trigger millrace_closed
