-- Lists the tenants. Index: that by name. Locks nothing.
select name from millrace_tenants order by name
