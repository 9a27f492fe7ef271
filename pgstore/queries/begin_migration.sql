-- Sets the transaction of a migration up, whatever the session's defaults are. Locks nothing, needs no index.
set local statement_timeout = 0;
set local lock_timeout = 0;
set local idle_in_transaction_session_timeout = 0;
set local synchronous_commit = on
