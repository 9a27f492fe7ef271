-- Reports whether the statement of backend $1 is a commit. It counts as none if it is hidden: that of another user, or
-- with track_activities off. Locks nothing, needs no index.
select coalesce((select a.query like 'commit%' from pg_stat_get_activity($1::integer) a), false)
