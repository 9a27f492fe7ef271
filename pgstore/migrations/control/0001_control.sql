-- The control schema: one per database, shared by all tenants. {control} is the quoted name of the schema.
create table {control}.tenants (
    tenant      text collate "C" primary key,
    schema_name text collate "C" not null unique,
    version     integer not null,
    created_at  timestamptz not null default clock_timestamp()
);

-- One running process each, and what it can run: projections by name, of these tenants (none: of all). expires_at is by
-- the server's clock; past it the node's leases are free to be claimed. A node whose session lock was seen to vanish is
-- buried: its expires_at is set to its heartbeat_at. session_key is the key of that lock. A node that is leaving gives its
-- leases back and has no share any more.
create table {control}.nodes (
    id           uuid primary key,
    projections  text[] not null,
    tenants      text[] not null,
    session_key  bigint not null,
    leaving      boolean not null default false,
    started_at   timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null
);

-- What changes rarely and may be wide. Its counterpart that changes with every batch is leases. failed is why the
-- projection stopped until somebody mends something, null where it did not; it counts for the epoch of its owner alone,
-- unless halted tells that the projection waits until somebody resumes it, whoever owns it. skipped counts the events that
-- it skipped.
-- trying_position is an event at which processes seem to end, and deaths how many attempts at it were begun without a word on
-- how they ended.
create table {control}.projections (
    id               integer generated always as identity primary key,
    tenant           text collate "C" not null references {control}.tenants,
    name             text collate "C" not null,
    partition        integer not null default 0,
    wanted           text collate "C" not null default 'run' check (wanted in ('run', 'pause', 'stop')),
    failed           text,
    failed_epoch     bigint,
    halted           boolean not null default false,
    skipped          bigint not null default 0,
    failing_position bigint not null default 0,
    attempts         integer not null default 0,
    trying_position  bigint not null default 0,
    deaths           integer not null default 0,
    trying_since     timestamptz,
    failing_since    timestamptz,
    last_error       text,
    last_error_at    timestamptz,
    unique (tenant, name, partition)
);

-- Narrow and half empty, so that every advance is a HOT update within the page. unclean counts the claims in a row from
-- owners that died before they committed a batch or were at rest. free_since is when the lease was given back or made, null while owned.
create table {control}.leases (
    id         integer primary key references {control}.projections on delete cascade,
    owner      uuid,
    epoch      bigint not null default 0,
    checkpoint bigint not null default 0,
    unclean    integer not null default 0,
    free_since timestamptz default clock_timestamp()
) with (fillfactor = 50);
-- For claims. An advance does not change the owner, so that it stays HOT.
create index on {control}.leases (owner);

create table {control}.dead_letters (
    id              bigint generated always as identity primary key,
    projection_id   integer not null references {control}.projections,
    position        bigint not null,
    stream_id       text collate "C" not null,
    stream_version  bigint not null,
    type            text collate "C" not null,
    error           text not null,
    stack           text not null,
    attempts        integer not null,
    first_failed_at timestamptz not null,
    last_failed_at  timestamptz not null,
    state           text collate "C" not null default 'parked',
    unique (projection_id, position)
);

-- The first half of the fence: raises unless the lease is held by this owner under this epoch. It locks nothing.
-- Index: leases_pkey.
create function {control}.check_lease(lease integer, held_by uuid, held_epoch bigint) returns void
language plpgsql stable as $$
begin
    perform 1 from {control}.leases l where l.id = lease and l.owner = held_by and l.epoch = held_epoch;
    if not found then
        raise exception 'lease % is not held by % under epoch %', lease, held_by, held_epoch using errcode = 'MR001';
    end if;
end
$$;

-- The second half: moves the checkpoint, and raises unless exactly the row that the batch began with is still there,
-- and unless the transaction is still the one that the batch began. Being raised, it takes a commit that was sent
-- along down with it. Lock: FOR NO KEY UPDATE on the lease's row, until the commit that follows at once.
-- Index: leases_pkey.
create function {control}.advance(batch text, lease integer, held_by uuid, held_epoch bigint, old bigint, new bigint)
returns void language plpgsql as $$
begin
    if current_setting('millrace.batch', true) is distinct from batch then
        raise exception 'the handler ended the transaction of its batch' using errcode = 'MR002';
    end if;
    update {control}.leases l set checkpoint = new, unclean = 0
     where l.id = lease and l.owner = held_by and l.epoch = held_epoch and l.checkpoint = old;
    if not found then
        raise exception 'lease % is not held by % under epoch % at checkpoint %', lease, held_by, held_epoch, old
            using errcode = 'MR001';
    end if;
end
$$;

-- Takes back a keyed append that met a version conflict: raised, it undoes the claim of the key.
create function {control}.refuse_append() returns bigint
language plpgsql volatile as $$
begin
    raise exception 'version conflict' using errcode = 'MR003';
end
$$;
