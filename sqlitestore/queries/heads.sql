-- Returns the last positions of the tenants in ?1, a JSON array. Index: that by name. Locks nothing.
select name, head from millrace_tenants where name in (select value from json_each(?1))
