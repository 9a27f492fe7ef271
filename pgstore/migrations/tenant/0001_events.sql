-- The events of one tenant. {tenant} is the quoted name of the tenant's schema, {control} that of the control schema.
create table {tenant}.streams (
    stream_id text collate "C" primary key,
    version   bigint not null
);

-- With "cache 1", every number that a session draws is above all numbers that were visible at that time. The settled
-- mark depends on that. slot says which partition of a projection has the event; it stands before the columns of
-- variable length, since reads of a partition look at the slot of every event.
create table {tenant}.events (
    global_seq     bigint generated always as identity (cache 1) primary key,
    slot           integer not null generated always as (('x' || left(md5(stream_id), 7))::bit(28)::integer) stored,
    stream_id      text collate "C" not null,
    stream_version bigint not null,
    type           text collate "C" not null,
    body           jsonb not null,
    headers        jsonb,
    causation_id   text collate "C",
    correlation_id text collate "C",
    created_at     timestamptz not null default clock_timestamp(),
    unique (stream_id, stream_version)
);

-- Idempotency keys. An append claims its key before it locks the stream, and stores its result in append_results. Later
-- appends delete old keys.
create table {tenant}.append_keys (
    key        text collate "C" primary key,
    stream_id  text collate "C" not null,
    created_at timestamptz not null default clock_timestamp()
);
create index on {tenant}.append_keys (created_at);
create table {tenant}.append_results (
    key           text collate "C" primary key,
    first_version bigint not null,
    last_version  bigint not null
);

-- Events are immutable.
select {control}.revoke_from_others('update, delete, truncate', pg_typeof(null::{tenant}.events));
