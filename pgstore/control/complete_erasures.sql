-- Lets the owner alone record erasures. Locks nothing, needs no index.
select {control}.revoke_from_others('insert, update, delete, truncate', pg_typeof(null::{control}.erasures))
