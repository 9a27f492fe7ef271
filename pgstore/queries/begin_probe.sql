-- Begins a probe. Its time-outs are short, and it commits as durably as a batch. Locks nothing, needs no index.
begin isolation level read committed;
set local lock_timeout = 1000;
set local statement_timeout = 5000;
set local idle_in_transaction_session_timeout = 5000;
set local synchronous_commit = on;
set local work_mem = '64kB';
set local temp_tablespaces = ''
