-- Rolls back the transaction of a handler that does not return. Locks: releases that of the file's writer. Needs no index.
rollback
