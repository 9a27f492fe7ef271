-- Disables JIT compilation for the other statements of the transaction. Locks nothing. No index.
select set_config('jit', 'off', true)
