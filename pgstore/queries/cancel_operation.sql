-- Ends the open operation on projection $2 of tenant $1 with code $3 and error $4, lets its projections run again, and
-- notifies the nodes over channel $5. What its node does for it cannot commit any more. Indexes: operations_open_idx, and
-- those of the function. Locks, until the commit: the row of the operation FOR NO KEY UPDATE, and those of the function.
with ended as (
    update {control}.operations set ended_at = clock_timestamp(), code = $3::text, error = $4::text
     where tenant = $1::text and name = $2::text and ended_at is null
    returning id
)
select {control}.release_holds(ended.id, $5::text), pg_notify($5::text, 'operations') from ended
