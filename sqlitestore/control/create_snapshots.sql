-- Creates the table of snapshots: states of aggregates, folded from the events of a stream up to a version. A snapshot is valid as long as
-- that event is at its position and has its time, and for programs with its fingerprint. An erasure removes the state and begins the next
-- generation. Lock: that of the file's writer. Needs no index.
create table if not exists millrace_snapshots (
    tenant      integer not null,
    stream_id   text not null,
    version     integer not null default 0,
    position    integer not null default 0,
    event_time  integer,
    fingerprint text,
    state       text,
    generation  integer not null default 0,
    primary key (tenant, stream_id)
) strict, without rowid
