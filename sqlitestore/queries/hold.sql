-- Makes the projections ?2 (JSON) of tenant ?1 stand still for the operation ?3, unless another operation holds one of
-- them, and returns the rows that it holds now. Indexes: tenants by name, projections by tenant. Lock: that of the file's
-- writer.
update millrace_projections set held_by = ?3
where tenant = (select id from millrace_tenants where name = ?1) and name in (select value from json_each(?2)) and held_by is null
  and not exists (select 1 from millrace_projections x
                  where x.tenant = (select id from millrace_tenants where name = ?1) and x.name in (select value from json_each(?2))
                    and x.held_by <> ?3)
returning id
