-- Records for tenant $1, which is locked, the move $2 to the store $3, and whether the tenant was active before, $4. Index: moves_pkey.
-- Locks: the row, and its tenant FOR KEY SHARE.
insert into {control}.moves (tenant, id, store, away, active, began_at)
values ({tenant_id $1::text}, $2::text, $3::text, true, $4::boolean, {now})
    on conflict (tenant) do update set id = excluded.id, store = excluded.store, away = true, active = excluded.active,
       repeated = false, began_at = excluded.began_at, moved_at = null
