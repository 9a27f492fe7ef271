-- Records that tenant $1, which is locked, came here by the move $2 from the store $3. Index: moves_pkey. Locks: the row, and its tenant
-- FOR KEY SHARE.
insert into {control}.moves (tenant, id, store, away, active, began_at, moved_at)
values ({tenant_id $1::text}, $2::text, $3::text, false, false, {now}, {now})
    on conflict (tenant) do update set id = excluded.id, store = excluded.store, away = false, active = false,
       repeated = false, began_at = excluded.began_at, moved_at = excluded.moved_at
