-- Ends the attempts at events of the projections $1, whose owners are alive and whose rows are locked. The attempts are not counted:
-- see release.sql. Index: projections_pkey.
update {control}.projections set crash_attempts = crash_attempts - 1 where id {in $1::integer[]} and crash_attempts > 0
