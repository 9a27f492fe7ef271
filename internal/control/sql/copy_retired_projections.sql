-- Returns the retired names of tenant $1 as JSON objects, in order. Index: retired_projections_pkey. Locks nothing.
select {object 'name', x.name, 'successor', x.successor, 'reason', x.reason, 'at', {micros x.retired_at}}
  from {control}.retired_projections x where x.tenant = {tenant_id $1::text} order by x.name
