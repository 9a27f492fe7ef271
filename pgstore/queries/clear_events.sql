-- Empties the tables of a tenant. Locks: ACCESS EXCLUSIVE on them until the commit that follows at once. Needs no index.
truncate {tenant}.events, {tenant}.streams, {tenant}.append_keys, {tenant}.append_results restart identity
