-- Makes the server plan the other statements of the transaction for their arguments, and not compile them. Locks
-- nothing. No index.
select set_config('jit', 'off', true) || set_config('plan_cache_mode', 'force_custom_plan', true)
