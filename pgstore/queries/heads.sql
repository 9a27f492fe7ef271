-- Returns the number {n} and the highest visible position of a tenant, or no row if the tenant has no events. It is one of
-- several such statements in a union. As an aggregate in a subquery it took the planner ten times as long. Index:
-- events_pkey, backwards. Locks nothing.
(select {n}, global_seq from {tenant}.events order by global_seq desc limit 1)
