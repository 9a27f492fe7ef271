-- Lets the transaction stay open while its process works elsewhere, without a limit. Locks nothing, needs no index.
set local idle_in_transaction_session_timeout = 0
