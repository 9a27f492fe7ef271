-- Creates the table of snapshots: states of aggregates, folded from the events of a stream up to a version. A snapshot is valid as long as
-- that event is at its position and has its time, and for programs with its fingerprint. An erasure removes the state and begins the next
-- generation. Locks: SHARE ROW EXCLUSIVE on tenants. Needs no index.
create table if not exists {control}.snapshots (
    tenant      text collate "C" not null references {control}.tenants (tenant) on delete cascade,
    stream_id   text collate "C" not null,
    version     bigint not null default 0,
    position    bigint not null default 0,
    event_time  timestamptz,
    fingerprint text,
    state       text,
    generation  bigint not null default 0,
    primary key (tenant, stream_id)
)
