-- Begins a transaction of Tenant.InTx. What sets its search path follows in the same message. Locks nothing, needs no index.
begin isolation level read committed
