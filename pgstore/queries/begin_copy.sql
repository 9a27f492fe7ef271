-- Records copy $1 of the source that $2 describes. It deletes copies of that source that have no tenants and opened
-- none: they failed before they closed the source, or were cancelled. Indexes: copies_pkey, and a scan of copies and
-- tenants. Locks: the rows of copies.
with unused as (
    delete from {control}.copies c
     where c.source = $2::text and c.id <> $1::uuid and c.opened_at is null and c.ended_at is null and not exists (select from {control}.tenants t where t.copy = c.id)
)
insert into {control}.copies (id, source) values ($1::uuid, $2::text) on conflict (id) do nothing
