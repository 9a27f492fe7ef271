-- Returns the aliases of tenant $1 as JSON objects, in order. Index: aliases_pkey. Locks nothing.
select {object 'name', a.name, 'stream', a.stream_id, 'at', {micros a.created_at}}
  from {control}.aliases a where a.tenant = {tenant_id $1::text} order by a.name
