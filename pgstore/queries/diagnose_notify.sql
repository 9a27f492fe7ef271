-- Notifies the channel $1. Lock: that of the notification queue until the commit. Needs no index.
select pg_notify($1, '')
