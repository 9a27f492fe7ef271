-- Returns the state of tenant $1, and the stream with the alias $2, or null. Locks nothing. Indexes: tenants_pkey, aliases_pkey.
select t.state, a.stream_id
  from {control}.tenants t left join {control}.aliases a on a.tenant = {tenant_id $1::text} and a.name = $2::text
 where t.{tenant_name} = $1::text
