-- Takes the node off the list. Index: nodes_pkey. Locks: its row.
delete from {control}.nodes where id = $1::uuid
