-- Makes all commits before it durable: it writes a record of its own, since a transaction that writes nothing waits for nothing. {flush} is
-- that of the last commit of a message. Index and lock: none.
select {flush}pg_catalog.pg_logical_emit_message(true, 'millrace', '')
