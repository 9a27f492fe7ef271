-- Says that a node is giving its leases back, so that the others take its share. $1 node, $2 channel. Index: nodes_pkey.
-- Locks: the node's row, and the queue of notifications during the commit.
with left_nodes as (
    update {control}.nodes set draining = true where id = $1::uuid returning id
)
select pg_notify($2::text, 'nodes') from left_nodes
