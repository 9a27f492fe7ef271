-- Part of append.sql and append_keyed.sql, for transactions of the caller: turns synchronous_commit on until the transaction
-- ends, if it is off. Locks nothing. Needs no index.
,
case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end
