-- Makes inserts into a tenant's events fail with the SQLSTATE {state}, also those of replication roles. Once it has its lock, no append is open, so all events of the tenant are visible, and
-- no further ones follow. Lock: SHARE ROW EXCLUSIVE on events until the commit; reads continue. Needs no index.
create or replace trigger millrace_closed before insert on {tenant}.events
    for each statement execute function {control}.refuse_append({state});
alter table {tenant}.events enable always trigger millrace_closed
