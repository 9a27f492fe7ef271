-- Marks a node as draining, so that other nodes take over its share. $1 node, $2 channel. Index: nodes_pkey. Locks:
-- the node's row, and the queue of notifications during the commit.
with draining as (
    update {control}.nodes set draining = true where id = $1::uuid returning id
)
select pg_notify($2::text, 'nodes') from draining
