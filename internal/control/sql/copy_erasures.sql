-- Returns the erasures of tenant $1 as JSON objects, in order. It scans and sorts the erasures. Needs no index, locks nothing.
select {object 'stream', e.stream_id, 'positions', {json e.positions}, 'reason', e.reason, 'pauses', e.pauses::integer,
       'requested', {micros e.requested_at}, 'ended', {micros e.ended_at}, 'events', e.events, 'types', {json e.types},
       'applied', {json e.applied}, 'delivered', {json e.delivered}}
  from {control}.erasures e where e.tenant = {tenant_id $1::text} order by e.id
