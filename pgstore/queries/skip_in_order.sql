-- Makes the other statements of the transaction read rows in the order of an index, and disables JIT compilation for them. While a
-- snapshot is open, or vacuum lags behind, an index has an entry for each version of a row since then. Entries with equal keys are in
-- the order of the places of their versions in the table. So a statement that reads backwards, up to its limit, finds the newest version
-- first. Otherwise the planner, which counts rows and not versions, might read and sort all of them. Locks nothing. No index.
select set_config('jit', 'off', true) || set_config('enable_sort', 'off', true)
