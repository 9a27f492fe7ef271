-- Creates the table of moves: to which store a tenant leaves or has left (away), or from which it came. id is the same in both stores.
-- active is set if the tenant was active before, and repeated if a second call has taken up the move. moved_at is null until the target has committed. Locks: SHARE ROW EXCLUSIVE on tenants.
-- Needs no index.
create table if not exists {control}.moves (
    tenant   text collate "C" primary key references {control}.tenants (tenant) on delete cascade,
    id       text not null,
    store    text not null,
    away     boolean not null,
    active   boolean not null,
    repeated boolean not null default false,
    began_at timestamptz not null,
    moved_at timestamptz
)
