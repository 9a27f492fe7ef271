-- Sets the last position of tenant ?1 to ?2, unless it is higher already, and returns it. Index: that by name. Lock: that of the file's writer.
update millrace_tenants set head = max(head, ?2) where name = ?1 returning head
