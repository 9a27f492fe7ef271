-- Returns the sequences of the ids that a copy reserves, quoted, for the quoted control schema $1. Locks nothing. Index:
-- those of the catalog.
select pg_get_serial_sequence($1::text || '.projections', 'id'), pg_get_serial_sequence($1::text || '.dead_letters', 'id'),
       pg_get_serial_sequence($1::text || '.commands', 'id')
