-- Sets the checkpoint of the leases of the projection ?2 of the tenant number ?1 whose ids are above ?3 to ?4. Indexes:
-- projections by tenant, and the primary key. Lock: that of the file's writer.
update millrace_leases set checkpoint = ?4
where id in (select id from millrace_projections where tenant = ?1 and name = ?2 and id > ?3)
