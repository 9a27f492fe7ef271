-- Allows inserts again after close_tenant.sql. It disables the trigger, since dropping it would wait for reads. It
-- also clears the trigger's SQLSTATE: pg_restore --disable-triggers enables all triggers of a table, and without an
-- SQLSTATE the trigger refuses nothing. Lock: SHARE ROW EXCLUSIVE on events until the commit. Needs no index.
create or replace trigger millrace_closed before insert on {tenant}.events
    for each statement execute function {control}.refuse_append('');
alter table {tenant}.events disable trigger millrace_closed
