-- Creates the table of erasures: what was redacted in which tenant, and why. pauses is set while the erasure has paused its tenant.
-- ended_at is null if it was interrupted: then nothing was redacted. Locks: SHARE ROW EXCLUSIVE on tenants. Needs no index.
create table if not exists {control}.erasures (
    id           bigint generated always as identity primary key,
    tenant       text collate "C" not null references {control}.tenants (tenant) on delete cascade,
    stream_id    text collate "C",
    positions    bigint[],
    reason       text not null,
    pauses       boolean not null default false,
    requested_at timestamptz not null,
    ended_at     timestamptz,
    events       bigint not null default 0,
    types        text[],
    applied      text[],
    delivered    text[]
)
