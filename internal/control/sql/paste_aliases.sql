-- Inserts the rows $2 of copy_aliases.sql into tenant $1. Index: aliases_pkey. Locks: the new rows, and their tenant FOR KEY SHARE.
insert into {control}.aliases (tenant, name, stream_id, created_at)
select {tenant_id $1::text}, list.value->>'name', list.value->>'stream', {time list.value->>'at'} from {objects $2::jsonb}
