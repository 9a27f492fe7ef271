-- Keeps the statements behind it in the transaction from being compiled. Locks nothing. No index.
select set_config('jit', 'off', true)
