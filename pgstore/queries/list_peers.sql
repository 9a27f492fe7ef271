-- Returns the other nodes whose heartbeats have not expired, and whether each holds its session lock. $1 is the asking
-- node. The asking node knows already what the nodes $2 registered, which never changes, so it is not returned again.
-- It skips backwards from one node to the next, in a session that reads in the order of the index: see skip_in_order.sql. Otherwise
-- it would read all heartbeats since the oldest open snapshot. Locks: those of the lock manager for a moment, for pg_locks. Index:
-- nodes_pkey.
with recursive node as (
    (select n.id, n.name, n.projections, n.tenants, n.filtered, n.filters, n.session_key, n.draining, n.heartbeat_at, n.expires_at
       from {control}.nodes n order by n.id desc limit 1)
    union all
    (select b.* from node a cross join lateral (
            select n.id, n.name, n.projections, n.tenants, n.filtered, n.filters, n.session_key, n.draining, n.heartbeat_at, n.expires_at
              from {control}.nodes n where n.id < a.id order by n.id desc limit 1) b)
)
select n.id::text, k.id is not null as known, n.name, case when k.id is null then n.projections end, case when k.id is null then n.tenants end,
       case when k.id is null then n.filtered end, case when k.id is null then n.filters end,
       n.draining, l.key is not null as locked, (extract(epoch from n.heartbeat_at) * 1000000)::bigint as beat
  from node n
  left join unnest($2::uuid[]) k(id) on k.id = n.id
  left join (select distinct (classid::bigint << 32 | objid::bigint) as key
               from pg_locks
              where locktype = 'advisory' and granted and objsubid = 1
                and database = (select oid from pg_database where datname = current_database())) l on l.key = n.session_key
 where n.expires_at > clock_timestamp() and n.id <> $1::uuid
