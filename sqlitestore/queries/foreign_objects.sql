-- Returns the objects of other programs on the store's tables that may change, refuse or swallow a write: their types, names
-- and tables. Those are triggers, indexes that are unique, partial, of an expression or of a collation that SQLite does not
-- have, and foreign keys to other columns than the id of an event. The store's own triggers are those of close_table.sql, and
-- its indexes are named millrace_…. A function of the user may have set case_sensitive_like, so names are compared by glob.
-- Locks nothing, needs no index: scans the list of tables and sorts the result.
select s.type, s.name, s.tbl_name
from main.sqlite_schema s
where lower(s.tbl_name) glob 'millrace_*' and (
    s.type = 'trigger' and s.name not in (s.tbl_name || '_insert_closed', s.tbl_name || '_update_closed', s.tbl_name || '_delete_closed')
    or s.type = 'index' and s.sql is not null and s.name not glob 'millrace_*' and (
        exists (select 1 from pragma_index_list(s.tbl_name) l where l.name = s.name and (l."unique" or l.partial))
        or exists (select 1 from pragma_index_xinfo(s.name) x where x.cid = -2 or x.coll not in ('BINARY', 'NOCASE', 'RTRIM'))))
union all
select 'foreign key', s.name, f."table"
from main.sqlite_schema s, pragma_foreign_key_list(s.name) f
where s.type = 'table' and lower(f."table") glob 'millrace_*'
and not (lower(f."table") = 'millrace_events' and coalesce(lower(f."to"), 'id') = 'id')
order by 1, 2, 3
