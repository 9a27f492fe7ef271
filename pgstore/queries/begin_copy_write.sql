-- Prepares the transaction of a write that belongs to copy {copy}. The commit need not be synchronous: after a crash of
-- the server, the copy continues after the last row that was kept. Locks nothing, needs no index.
set local statement_timeout = 0;
set local lock_timeout = 0;
set local idle_in_transaction_session_timeout = 0;
set local synchronous_commit = off;
set local millrace.copy = {copy}
