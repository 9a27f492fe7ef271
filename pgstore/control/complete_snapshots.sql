-- Every role that appends saves snapshots: default privileges decide. Locks nothing, needs no index.
select
