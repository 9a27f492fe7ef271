-- Returns the last key of part $2 of tenant $1 that is copied, and the number of copied rows. Locks nothing. Index:
-- copied_parts_pkey.
select last_key, rows from {control}.copied_parts where tenant = $1::text and part = $2::text
