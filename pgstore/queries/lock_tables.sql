-- Locks tables before they are dropped, so that nothing new depends on them. Lock: ACCESS EXCLUSIVE until the commit.
-- Needs no index.
lock table {tables} in access exclusive mode
