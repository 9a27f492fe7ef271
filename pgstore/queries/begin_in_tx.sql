-- Begins a transaction of Tenant.InTx. The same message then sets its search path. Locks nothing, needs no index.
begin isolation level read committed
