-- Returns how far part $2 of tenant $1 is copied. Locks nothing. Index: copied_parts_pkey.
select last_key, rows from {control}.copied_parts where tenant = $1::text and part = $2::text
