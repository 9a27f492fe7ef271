-- Marks a node dead if its session lock is gone and its last heartbeat is still $3, and notifies the nodes, so that
-- its leases are claimed at once. $1 node, $2 channel. Index: nodes_pkey. Locks: the node's row until the commit,
-- those of the lock manager for a moment, and the queue of notifications during the commit.
with marked as (
    update {control}.nodes n set expires_at = n.heartbeat_at
     where n.id = $1::uuid and n.expires_at > clock_timestamp() and n.heartbeat_at = $3::timestamptz
       and not exists (select from pg_locks
                        where locktype = 'advisory' and granted and objsubid = 1
                          and database = (select oid from pg_database where datname = current_database())
                          and (classid::bigint << 32 | objid::bigint) = n.session_key)
    returning n.id
)
select pg_notify($2::text, 'nodes') from marked
