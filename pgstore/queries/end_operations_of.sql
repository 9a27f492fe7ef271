-- Ends the open operation on projection $2 of tenant $1, which no longer exists, with code $3 and error $4, and lets the
-- others that it holds run again. Channel $5 notifies the nodes. Indexes: operations_open_idx, and those of the function.
-- Locks: those of the function, and the row until the commit.
with ended as (
    update {control}.operations set ended_at = clock_timestamp(), code = $3::text, error = $4::text
     where tenant = $1::text and name = $2::text and ended_at is null
    returning id
)
select {control}.release_holds(ended.id, $5::text) from ended
