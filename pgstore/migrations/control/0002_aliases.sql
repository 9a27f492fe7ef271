-- The aliases of a tenant: the ids of streams by names. The tenant's row takes its aliases along, also if an older program drops
-- the tenant.
create table {control}.aliases (
    tenant     text collate "C" not null references {control}.tenants on delete cascade,
    name       text collate "C" not null,
    stream_id  text collate "C" not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, name)
);
