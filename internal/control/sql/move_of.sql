-- Returns the record of the last move of tenant $1. Index: moves_pkey. Locks nothing.
select id, store, away, active, repeated, began_at, moved_at from {control}.moves where tenant = {tenant_id $1::text}
