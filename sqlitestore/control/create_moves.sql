-- Creates the table of moves: to which store a tenant leaves or has left (away), or from which it came. id is the same in both stores.
-- active is set if the tenant was active before, and repeated if a second call has taken up the move. moved_at is null until the target has committed. The row of tenant 0 has the id of the
-- file: see complete_moves.sql. Lock: that of the file's writer. Needs no index.
create table if not exists millrace_moves (
    tenant   integer primary key,
    id       text not null,
    store    text not null,
    away     integer not null check (away in (0, 1)),
    active   integer not null check (active in (0, 1)),
    repeated integer not null default 0 check (repeated in (0, 1)),
    began_at integer not null,
    moved_at integer
) strict
