-- Deletes the record of how far tenant $1 is copied. Locks: the rows. Index: copied_parts_pkey.
delete from {control}.copied_parts where tenant = $1::text
