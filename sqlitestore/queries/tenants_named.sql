-- Returns the tenants of the names ?1, a JSON array, as tenants.sql does. Index: that by name. Locks nothing.
select id, name, case when state = 'active' and paused then 'paused' else state end
from millrace_tenants where name in (select value from json_each(?1)) order by name
