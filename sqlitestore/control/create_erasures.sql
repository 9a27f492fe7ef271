-- Creates the table of erasures: what was redacted in which tenant, and why. Lists are JSON. pauses is set while the erasure has paused
-- its tenant. ended_at is null if it was interrupted: then nothing was redacted. Lock: that of the file's writer. Needs no index.
create table if not exists millrace_erasures (
    id           integer primary key autoincrement,
    tenant       integer not null,
    stream_id    text,
    positions    text,
    reason       text not null,
    pauses       integer not null default 0 check (pauses in (0, 1)),
    requested_at integer not null,
    ended_at     integer,
    events       integer not null default 0,
    types        text,
    applied      text,
    delivered    text
) strict
