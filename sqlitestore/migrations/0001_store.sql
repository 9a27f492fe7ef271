-- The tables of the store begin with millrace_; all others in the file are the user's.

-- The tenants. head is the last position that an event of the tenant got. It never falls, so no position is used
-- twice, even after events were deleted. With "autoincrement" the same holds for id, which is part of the ids of
-- events. The events of an archived tenant are read-only, and its projections do not run. A tenant that is being dropped
-- takes no appends either. When nothing of it runs any more, deleting is set, its events cannot be read any more, and
-- everything of it is deleted in many transactions. The last one deletes its row.
create table millrace_tenants (
    id       integer primary key autoincrement check (id between 1 and 8388607),
    name     text not null unique,
    head     integer not null default 0 check (head between 0 and 1099511627775),
    state    text not null default 'active' check (state in ('active', 'archived', 'dropping')),
    paused   integer not null default 0 check (paused in (0, 1)),
    deleting integer not null default 0 check (deleting in (0, 1))
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
-- microseconds since 1970. checksum is the CRC-32C of the other columns (see checksum.go), since SQLite does not notice
-- when bytes of a value change.
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
    checksum       integer not null,
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

-- The state of a projection that changes rarely and may be wide. millrace_leases has the state that changes with every
-- batch. token is random. Delivery tokens begin with it, so that receivers can detect repeats; renaming the projection
-- keeps it. failed_reason is why the projection stopped, null if it runs. It is valid for failed_epoch alone, that is,
-- for one owner. If halted is set, it is valid until the projection is resumed, whoever owns it. skipped counts skipped
-- events, parked the dead letters in the states parked and replaying. attempts counts the failed attempts at
-- failing_position. next_attempt_at is when the next attempt was due when the last one was recorded. If missing_object is
-- set, the event there waits for a database object, which last_error names. crash_attempts counts the attempts at
-- crash_position that began and whose end was not recorded: the process may have crashed. tenant_suspended is set while
-- the tenant is paused or not active. held_by is the open operation that needs the projection to stand still. In both
-- cases the projection is suspended: it does not run, whatever its desired state is. delivers is set if its handler works
-- outside of the transaction. rebuild_since is when the projection was set back to the position rebuild_from; it is being
-- rebuilt until it reaches rebuild_to. An unsplit projection has one row, with partition 0. A projection with n
-- partitions has n rows, 1 to n, with n in partitions and one token. A row's events are those of the streams with
-- slot_from <= slot < slot_to, without those that were handled before the row existed. passed has these as JSON: a list
-- of [from, to, position], for the events of the slots from <= slot < to up to the position. All times count microseconds
-- since 1970.
create table millrace_projections (
    id               integer primary key autoincrement check (id between 1 and 2147483647),
    tenant           integer not null,
    name             text not null,
    partition        integer not null default 0,
    partitions       integer not null default 1,
    slot_from        integer not null default 0,
    slot_to          integer not null default 268435456,
    passed           text not null default '[]',
    token            text not null,
    desired_state    text not null default 'run' check (desired_state in ('run', 'pause')),
    tenant_suspended integer not null default 0 check (tenant_suspended in (0, 1)),
    held_by          integer,
    suspended        integer not null generated always as (tenant_suspended or held_by is not null) stored,
    delivers         integer not null default 0 check (delivers in (0, 1)),
    failed_reason    text,
    failed_epoch     integer,
    halted           integer not null default 0 check (halted in (0, 1)),
    skipped          integer not null default 0,
    parked           integer not null default 0,
    failing_position integer not null default 0,
    attempts         integer not null default 0,
    crash_position   integer not null default 0,
    crash_attempts   integer not null default 0,
    crash_since      integer,
    failing_since    integer,
    last_error       text,
    last_error_at    integer,
    next_attempt_at  integer,
    missing_object   integer not null default 0 check (missing_object in (0, 1)),
    rebuild_since    integer,
    rebuild_from     integer not null default 0,
    rebuild_to       integer not null default 0,
    unique (tenant, name, partition)
) strict;
create index millrace_projections_parked on millrace_projections (parked) where parked > 0;

-- The names under which no projection of a tenant is created any more, so that a node of an older release does not begin
-- at the first event. No name is both here and in millrace_projections. successor is the name that the projection has
-- now, null if it was forgotten. It is never retired itself: when it is, all names that lead to it get its successor.
-- An earlier version of a projection is unused if the tenant began with a later one, its successor.
create table millrace_retired_projections (
    tenant     integer not null,
    name       text not null,
    successor  text check (successor <> name),
    reason     text not null check (reason in ('forgotten', 'renamed', 'replaced', 'unused')),
    retired_at integer not null,
    primary key (tenant, name),
    check ((successor is null) = (reason = 'forgotten'))
) strict, without rowid;

-- The leases, by the ids of projections. crash_count counts consecutive claims from owners that died before they
-- committed a batch or went idle. free_since is when the lease was created or released, null while it is owned.
create table millrace_leases (
    id          integer primary key,
    owner       text,
    epoch       integer not null default 0,
    checkpoint  integer not null default 0,
    crash_count integer not null default 0,
    free_since  integer
) strict;
create index millrace_leases_owner on millrace_leases (owner);

-- The node that has the file's owner lock, or had it last: one row. name describes it to people. projections, tenants
-- and filters are JSON: what the node can run (see engine.Node). The row has no heartbeat: the node lives as long as the owner lock is held.
create table millrace_nodes (
    id          text primary key,
    name        text not null default '',
    projections text not null,
    tenants     text not null,
    filters     text not null,
    draining    integer not null default 0 check (draining in (0, 1)),
    started_at  integer not null,
    summary     text
) strict, without rowid;

-- Notices to the node that owns the file, from this process and others. The columns are those of engine.Notice. The owner
-- reads them in order. Old ones are deleted.
create table millrace_notices (
    id         integer primary key autoincrement,
    tenant     text,
    projection integer,
    commanded  integer not null default 0,
    nodes      integer not null default 0,
    operations integer not null default 0
) strict;

-- Parked events. A row refers to its event and does not copy it. If blocked_by_stream is set, the event did not fail:
-- it is parked because an earlier event of its stream is. replays counts failed replays, open_replays those that began
-- and whose end was not recorded. last_command is the last command that tried it. Only the owner of the projection's
-- lease changes parked events.
create table millrace_dead_letters (
    id                integer primary key autoincrement,
    projection        integer not null,
    position          integer not null,
    stream_id         text not null,
    version           integer not null,
    type              text not null,
    blocked_by_stream integer not null default 0 check (blocked_by_stream in (0, 1)),
    state             text not null default 'parked' check (state in ('parked', 'replaying', 'resolved', 'discarded')),
    error             text not null,
    stack             text not null,
    attempts          integer not null,
    replays           integer not null default 0,
    open_replays      integer not null default 0,
    last_command      integer not null default 0,
    first_failed_at   integer not null,
    last_failed_at    integer not null,
    ended_at          integer,
    unique (projection, position)
) strict;
-- In this order: parked events by position; parked events of one stream; ended ones by age; the oldest parked event of
-- all projections; failed events for the automatic replayer.
create index millrace_dead_letters_parked on millrace_dead_letters (projection, position) where state in ('parked', 'replaying');
create index millrace_dead_letters_stream on millrace_dead_letters (projection, stream_id, position) where state in ('parked', 'replaying');
create index millrace_dead_letters_ended on millrace_dead_letters (projection, ended_at) where state in ('resolved', 'discarded');
create index millrace_dead_letters_oldest on millrace_dead_letters (first_failed_at) where state in ('parked', 'replaying');
create index millrace_dead_letters_due on millrace_dead_letters (projection, replays, last_failed_at) where state in ('parked', 'replaying') and blocked_by_stream = 0;

-- Streams whose later events are parked after a failed event. last_command is the last command that tried the first of
-- them.
create table millrace_parked_streams (
    projection   integer not null,
    stream_id    text not null,
    last_command integer not null default 0,
    primary key (projection, stream_id)
) strict, without rowid;

-- Commands on dead letters, which the lease's owner runs. A command of a projection with partitions has a row for each
-- partition. root is the id of the first row, and null in the first row. dead_letter_ids (JSON), stream_id, type and
-- error select the dead letters (null: any). max_events limits their number, for all rows together. done and failed count
-- the results so far. While a replay runs, current_stream is the parked stream that is being replayed, and all dead
-- letters up to after_position were tried. current_dead_letter is the one whose replay began last, null after its end was
-- recorded.
create table millrace_commands (
    id                  integer primary key autoincrement,
    root                integer,
    projection          integer not null,
    kind                text not null check (kind in ('replay', 'discard')),
    dead_letter_ids     text,
    stream_id           text,
    type                text,
    error               text,
    max_events          integer not null,
    current_stream      text,
    after_position      integer not null default 0,
    done                integer not null default 0,
    failed              integer not null default 0,
    current_dead_letter integer,
    created_at          integer not null,
    ended_at            integer
) strict;
create index millrace_commands_open on millrace_commands (projection, id) where ended_at is null;
create index millrace_commands_ended on millrace_commands (projection, ended_at);
create index millrace_commands_root on millrace_commands (root) where root is not null;

-- Operations that run code of a projection: the node that owns the file carries them out, if it registers the projection.
-- holds (JSON) are the names of the projections that stand still meanwhile: held_by in their rows is the operation. options
-- are for the kind of operation. node carries it out, and raises epoch when it begins. hook_runs (JSON) are the runs of
-- the hook that have not returned. ended_at, code and error say how it ended; while it is open, error is why the last try
-- failed. code is that of engine.OperationFailure.
create table millrace_operations (
    id           integer primary key autoincrement,
    tenant       integer not null,
    name         text not null,
    kind         text not null check (kind in ('rebuild', 'swap', 'drop')),
    holds        text not null,
    options      text not null,
    node         text,
    epoch        integer not null default 0,
    hook_runs    text not null default '[]',
    requested_at integer not null,
    started_at   integer,
    ended_at     integer,
    code         text,
    error        text
) strict;
create unique index millrace_operations_open on millrace_operations (tenant, name) where ended_at is null;
create index millrace_operations_ended on millrace_operations (tenant, name, ended_at) where ended_at is not null;

-- One row, which is updated to find out whether the file can be written to.
create table millrace_probe (
    probes integer not null
) strict;
insert into millrace_probe values (0);

-- The copy of this file into another store that has begun: at most one row. id identifies the copy there, from_name and
-- to_name describe the file and the other store. While there is a row, triggers refuse all writes to the other tables
-- (see close_table.sql).
create table millrace_copy (
    singleton integer primary key check (singleton = 1),
    id        text not null,
    from_name text not null,
    to_name   text not null
) strict;
