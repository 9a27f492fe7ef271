-- Makes all commits before it durable: it writes a record of its own, since a transaction that writes nothing waits for nothing. Index and
-- lock: none.
select set_config('synchronous_commit', 'on', true), pg_logical_emit_message(true, 'millrace', '')
