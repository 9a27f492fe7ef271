-- Has the other statements of the transaction planned for their arguments, and not compiled. Locks nothing. No index.
select set_config('jit', 'off', true) || set_config('plan_cache_mode', 'force_custom_plan', true)
