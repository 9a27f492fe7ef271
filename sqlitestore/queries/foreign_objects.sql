-- Returns the objects of other programs on the store's tables that may change, refuse or swallow a write: their types, names
-- and tables. Those are triggers, and indexes that are unique, partial or of an expression. The store's own triggers are named
-- millrace_…_closed, and its indexes millrace_…. A function of the user may have set case_sensitive_like, so names are compared
-- by glob. Locks nothing, needs no index: scans the list of tables and sorts the result.
select s.type, s.name, s.tbl_name
from main.sqlite_schema s
where lower(s.tbl_name) glob 'millrace_*' and (
    s.type = 'trigger' and s.name not glob 'millrace_*_closed'
    or s.type = 'index' and s.sql is not null and s.name not glob 'millrace_*' and (
        exists (select 1 from pragma_index_list(s.tbl_name) l where l.name = s.name and (l."unique" or l.partial))
        or exists (select 1 from pragma_index_xinfo(s.name) x where x.cid = -2)))
order by s.type, s.name
