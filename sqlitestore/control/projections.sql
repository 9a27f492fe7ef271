-- Returns the projections that a filter selects, each with its lease, the age of its oldest parked event, and the operation
-- that holds it or is open. ?1 tenants, ?2 names, ?3 exact rows as JSON arrays of tenant, name and partition, ?4 states, ?5
-- owner, ?6 not this owner, ?7 whether with parked events, ?8 to ?10 the row after which the page begins, '' and -1 for the
-- first page, ?11 limit. Null means any. Durations are microseconds. :living is the living owner of the file, '' for none,
-- and :seen when the last owner was seen alive. It scans the names of tenants, and reads the projections of the selected ones
-- in the order of the result, until the limit. Indexes: tenants by name, projections by tenant, primary keys, parked dead
-- letters, open operations. Locks nothing.
select * from (
    select t.name as of_tenant, p.name, p.partition, p.partitions,
           case when p.suspended or p.desired_state <> 'run' then 'paused'
                when p.halted then 'failed'
                when l.owner is not :living then 'not owned'
                when p.failed_epoch = l.epoch and p.failed_reason <> '' then 'failed'
                when p.failing_position <= l.checkpoint then 'elsewhere'
                when p.missing_object then 'missing object'
                else 'waiting' end as state,
           case when p.tenant_suspended then 'pause' else p.desired_state end,
           case when t.state = 'active' and t.paused then 'paused' else t.state end,
           coalesce(case when p.halted or p.failed_epoch = l.epoch then p.failed_reason end, ''),
           p.halted, p.skipped, p.failing_position, p.attempts, coalesce(p.last_error, ''), p.last_error_at, p.next_attempt_at, coalesce(l.owner, ''),
           coalesce((select n.name from millrace_nodes n where n.id = l.owner), ''), l.epoch, l.checkpoint, p.parked,
           case when p.parked > 0 then (select d.first_failed_at from millrace_dead_letters d
                                        where d.projection = p.id and d.state in ('parked', 'replaying') order by d.position limit 1) end,
           l.owner is :living,
           coalesce(:now - coalesce(l.free_since, (select case when n.id = l.owner then :seen else n.started_at end from millrace_nodes n)), 0),
           p.rebuild_since, coalesce(:now - p.rebuild_since, 0), p.rebuild_from, p.rebuild_to, coalesce(o.id, 0), coalesce(o.kind, ''), coalesce(o.node, ''), o.requested_at,
           o.started_at, coalesce(o.error, ''), p.held_by is not null
    from millrace_tenants t
    cross join millrace_projections p on p.tenant = t.id
    cross join millrace_leases l on l.id = p.id
    left join millrace_operations o
        on o.id = coalesce(p.held_by, (select x.id from millrace_operations x where x.tenant = p.tenant and x.name = p.name and x.ended_at is null))
    where t.name >= ?8 and (t.name > ?8 or (p.name, p.partition) > (?9, ?10))
      and (?1 is null or t.name in (select value from json_each(?1)))
      and (?2 is null or p.name in (select value from json_each(?2)))
      and (?3 is null or (t.name, p.name, p.partition) in
           (select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') from json_each(?3)))
      and (?5 is null or l.owner = ?5) and (?6 is null or l.owner is not ?6) and (not ?7 or p.parked > 0))
where ?4 is null or state in (select value from json_each(?4))
order by of_tenant, name, partition
limit coalesce(?11, -1)
