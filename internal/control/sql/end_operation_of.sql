-- Ends the open operation on projection $2 of tenant $1 with code $3 and error $4, and returns its number. Index:
-- operations_open_idx. Locks: the row until the commit.
update {control}.operations set ended_at = {now}, code = $3::text, error = $4::text
 where tenant = {tenant_id $1::text} and name = $2::text and ended_at is null
returning id
