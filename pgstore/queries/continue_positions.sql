-- Sets the last position of a tenant to $1, unless a higher position was drawn already. $2 is the tenant's quoted
-- schema. The sequence keeps this even if the transaction is rolled back. Locks nothing. Index: those of the
-- catalog.
select setval(x.s, greatest($1::bigint, coalesce(pg_sequence_last_value(x.s), 0)))
  from (select pg_get_serial_sequence($2::text || '.events', 'global_seq')::regclass as s offset 0) x
