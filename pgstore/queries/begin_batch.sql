-- Begins the transaction of a batch. Locks nothing, needs no index.
begin isolation level read committed read write
