-- The tables of the store begin with millrace_; all others in the file are the user's.

-- The tenants. head is the last position that an event of the tenant got. It never falls, so no position is used
-- twice, even after events were deleted. With "autoincrement" the same holds for id, which is part of the ids of
-- events.
create table millrace_tenants (
    id   integer primary key autoincrement check (id between 1 and 8388607),
    name text not null unique,
    head integer not null default 0 check (head between 0 and 1099511627775)
) strict;

-- version is the version of the stream's last event. It never falls.
create table millrace_streams (
    tenant    integer not null,
    stream_id text not null,
    version   integer not null,
    primary key (tenant, stream_id)
) strict, without rowid;

-- The events. id is tenant * 2^40 + position: the events of a tenant stand together in their order, and need no index
-- for it. slot says which partition of a projection has the event (see internal/partition). created_at counts
-- microseconds since 1970.
create table millrace_events (
    id             integer primary key,
    tenant         integer not null generated always as (id >> 40) virtual,
    position       integer not null generated always as (id & 1099511627775) virtual,
    slot           integer not null,
    stream_id      text not null,
    version        integer not null,
    type           text not null,
    body           text not null,
    headers        text,
    causation_id   text,
    correlation_id text,
    created_at     integer not null,
    unique (tenant, stream_id, version)
) strict;

-- Idempotency keys, and the versions of the events that the first append with a key appended. Later appends delete old
-- keys.
create table millrace_append_keys (
    tenant        integer not null,
    key           text not null,
    stream_id     text not null,
    first_version integer not null,
    last_version  integer not null,
    created_at    integer not null,
    primary key (tenant, key)
) strict, without rowid;
create index millrace_append_keys_created_at on millrace_append_keys (created_at);
