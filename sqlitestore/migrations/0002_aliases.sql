-- The aliases of a tenant: the ids of streams by names. An older program that drops a tenant leaves its aliases. The number of a
-- tenant is not used again, so no other tenant has them, and the next drop of this program deletes them.
create table millrace_aliases (
    tenant     integer not null,
    name       text not null,
    stream_id  text not null,
    created_at integer not null,
    primary key (tenant, name)
) strict, without rowid;
