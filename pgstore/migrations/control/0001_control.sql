-- The control schema. There is one per database, and all tenants share it. {control} is its quoted name. setup is the
-- number of steps of Options.TenantSetup that were applied to the tenant. id differs if a tenant is created again under
-- its name. The events of an archived tenant are read-only, and its projections do not run. The row of a tenant that is
-- being dropped is deleted when the drop ends. While a tenant is being copied from another store, copy has the id of the
-- copy, and only the copy may append.
create table {control}.tenants (
    tenant      text collate "C" primary key,
    schema_name text collate "C" not null unique,
    version     integer not null,
    setup       integer not null default 0,
    state       text collate "C" not null default 'active' check (state in ('active', 'archived', 'dropping', 'copying')),
    paused      boolean not null default false,
    created_at  timestamptz not null default clock_timestamp(),
    id          integer generated always as identity,
    copy        uuid
);

-- The copies of other stores into this one. source describes the store for people. The ids of a copied projection, dead
-- letter or command are those of the source plus projection_ids, dead_letter_ids or command_ids, which are null until
-- ids were reserved. verified_at is when all rows of the copy were compared with the source. opened_at is when its
-- first tenant was opened, ended_at when all were open.
create table {control}.copies (
    id              uuid primary key,
    source          text collate "C" not null,
    projection_ids  bigint,
    dead_letter_ids bigint,
    command_ids     bigint,
    began_at        timestamptz not null default clock_timestamp(),
    verified_at     timestamptz,
    opened_at       timestamptz,
    ended_at        timestamptz
);

-- How far each part of a tenant is copied: the key of the last row, as JSON, and the number of rows.
create table {control}.copied_parts (
    tenant   text collate "C" not null references {control}.tenants on delete cascade,
    part     text collate "C" not null,
    last_key text not null,
    rows     bigint not null,
    primary key (tenant, part)
);

-- One row per running process. name describes it to people. projections are the names that it can run, tenants those
-- that it serves (empty: all). It runs the projection filtered[i] only for tenants that filters[i] matches; a projection may be there several times. By
-- the server's clock, the node's leases expire at expires_at. Marking a node dead sets expires_at to heartbeat_at.
-- session_key is the key of its session lock. A draining node releases its leases and has no share of them. summary
-- describes the projections that the node runs, null if its version of the program writes none.
create table {control}.nodes (
    id           uuid primary key,
    name         text not null default '',
    projections  text[] not null,
    tenants      text[] not null,
    filtered     text[] not null default '{}',
    filters      text[] not null default '{}',
    session_key  bigint not null,
    draining     boolean not null default false,
    started_at   timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    summary      jsonb
);

-- The state of a projection that changes rarely and may be wide. leases has the state that changes with every batch.
-- token is random. Delivery tokens begin with it, so that receivers can detect repeats; renaming the projection keeps
-- it. failed_reason is why the projection stopped, null if it runs. It is valid for failed_epoch alone, that is, for
-- one owner. If halted is set, it is valid until the projection is resumed, whoever owns it. skipped counts skipped
-- events, parked the dead letters in the states parked and replaying. attempts counts the failed attempts at
-- failing_position. next_attempt_at is when the next attempt was due when the last one was recorded. If missing_object
-- is set, the event there waits for a database object or a privilege, which last_error names. crash_attempts counts the
-- attempts at crash_position that began and whose end was not recorded: the process may have crashed. tenant_suspended
-- is set while the tenant is paused or not active. held_by is the open operation that needs the projection to stand
-- still. In both cases the projection is suspended: it does not run, whatever its desired state is. delivers is set if
-- its handler works outside of the transaction. rebuild_since is when the projection was set back to the position
-- rebuild_from; it is being rebuilt until it reaches rebuild_to. An unsplit projection has one row, with partition 0. A
-- projection with n partitions has n rows, 1 to n, with n in partitions and one token. A row's events are those of the
-- streams with slot_from <= slot < slot_to, without those that were handled before the row existed: for each i, the
-- events of the slots from passed_from[i] to passed_to[i], exclusive, up to the position passed_upto[i].
create table {control}.projections (
    id               integer generated always as identity primary key,
    tenant           text collate "C" not null references {control}.tenants,
    name             text collate "C" not null,
    partition        integer not null default 0,
    partitions       integer not null default 1,
    slot_from        integer not null default 0,
    slot_to          integer not null default 268435456,
    passed_from      integer[] not null default '{}',
    passed_to        integer[] not null default '{}',
    passed_upto      bigint[] not null default '{}',
    token            uuid not null default gen_random_uuid(),
    desired_state    text collate "C" not null default 'run' check (desired_state in ('run', 'pause')),
    tenant_suspended boolean not null default false,
    held_by          bigint,
    suspended        boolean not null generated always as (tenant_suspended or held_by is not null) stored,
    delivers         boolean not null default false,
    failed_reason    text,
    failed_epoch     bigint,
    halted           boolean not null default false,
    skipped          bigint not null default 0,
    parked           bigint not null default 0,
    failing_position bigint not null default 0,
    attempts         integer not null default 0,
    crash_position   bigint not null default 0,
    crash_attempts   integer not null default 0,
    crash_since      timestamptz,
    failing_since    timestamptz,
    last_error       text,
    last_error_at    timestamptz,
    next_attempt_at  timestamptz,
    missing_object   boolean not null default false,
    rebuild_since    timestamptz,
    rebuild_from     bigint not null default 0,
    rebuild_to       bigint not null default 0,
    unique (tenant, name, partition)
);
-- For the sum of all parked events, and lists of the projections that have some.
create index on {control}.projections (parked) where parked > 0;

-- The names under which no projection of a tenant is created any more, so that a node of an older release does not begin
-- at the first event. No name is both here and in projections. successor is the name that the projection has now, null if
-- it was forgotten. It is never retired itself: when it is, all names that lead to it get its successor. An earlier
-- version of a projection is unused if the tenant began with a later one, its successor.
create table {control}.retired_projections (
    tenant     text collate "C" not null references {control}.tenants on delete cascade,
    name       text collate "C" not null,
    successor  text collate "C" check (successor <> name),
    reason     text collate "C" not null check (reason in ('forgotten', 'renamed', 'replaced', 'unused')),
    retired_at timestamptz not null default clock_timestamp(),
    primary key (tenant, name),
    check ((successor is null) = (reason = 'forgotten'))
);

-- Probes update the one row of this table to find out whether the server takes writes. Its value has no meaning.
create table {control}.probe (
    singleton boolean primary key default true check (singleton),
    probed_at timestamptz
);
insert into {control}.probe default values;

-- The leases. Rows are narrow and pages half empty, so that every advance is a HOT update within its page. crash_count
-- counts consecutive claims from owners that died before they committed a batch or went idle. free_since is when the
-- lease was created or released, null while it is owned. asleep is set on free leases of suspended projections, so that
-- searches for free leases do not read them.
create table {control}.leases (
    id          integer primary key references {control}.projections on delete cascade,
    owner       uuid,
    epoch       bigint not null default 0,
    checkpoint  bigint not null default 0,
    crash_count integer not null default 0,
    free_since  timestamptz default clock_timestamp(),
    asleep      boolean not null default false
) with (fillfactor = 50);
-- For claims. An advance does not change the owner, so it stays HOT.
create index on {control}.leases (owner);
create index leases_free_idx on {control}.leases (id) where owner is null and not asleep;

-- Takes the structural lock. A transaction that changes the projections, partitions or states of tenants takes it
-- first, in a separate statement. The next statement then sees the commit of the previous holder. The function is a
-- security definer, since only the owner may lock rows of tenants. Locks: the rows of the tenants FOR NO KEY UPDATE,
-- until the commit, in order of their names. Index: tenants_pkey.
create function {control}.lock_tenants(names text[]) returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform 1 from {control}.tenants t where t.tenant = any(names) order by t.tenant for no key update;
end
$$;

-- Parked events. A row refers to its event and does not copy it. If blocked_by_stream is set, the event did not fail:
-- it is parked because an earlier event of its stream is. replays counts failed replays, open_replays those that began
-- and whose end was not recorded. last_command is the last command that tried it. Only the owner of the projection's
-- lease changes parked events.
create table {control}.dead_letters (
    id                bigint generated always as identity primary key,
    projection_id     integer not null references {control}.projections,
    position          bigint not null,
    stream_id         text collate "C" not null,
    stream_version    bigint not null,
    type              text collate "C" not null,
    blocked_by_stream boolean not null default false,
    state             text collate "C" not null default 'parked' check (state in ('parked', 'replaying', 'resolved', 'discarded')),
    error             text not null,
    stack             text not null,
    attempts          integer not null,
    replays           integer not null default 0,
    open_replays      integer not null default 0,
    last_command      bigint not null default 0,
    first_failed_at   timestamptz not null,
    last_failed_at    timestamptz not null,
    ended_at          timestamptz,
    unique (projection_id, position)
) with (fillfactor = 80);
-- In this order: parked events by position; parked events of one stream; ended ones by age.
create index on {control}.dead_letters (projection_id, position) where state in ('parked', 'replaying');
create index on {control}.dead_letters (projection_id, stream_id, position) where state in ('parked', 'replaying');
create index on {control}.dead_letters (projection_id, ended_at) where state in ('resolved', 'discarded');
-- The oldest parked event of all projections; see overview.sql.
create index on {control}.dead_letters (first_failed_at) where state in ('parked', 'replaying');
-- Failed events for the automatic replayer; see next_due_replay.sql.
create index on {control}.dead_letters (projection_id, replays, last_failed_at) where state in ('parked', 'replaying') and not blocked_by_stream;

-- Streams whose later events are parked after a failed event. last_command is the last command that tried the first of
-- them.
create table {control}.parked_streams (
    projection_id integer not null references {control}.projections,
    stream_id     text collate "C" not null,
    last_command  bigint not null default 0,
    primary key (projection_id, stream_id)
);

-- Commands on dead letters, which the lease's owner runs. A command of a projection with partitions has a row for each
-- partition. root is the id of the first row, and null in the first row. dead_letter_ids, stream_id, type and error
-- select the dead letters (null: any). max_events limits their number, for all rows together. done and failed count the
-- results so far. While a replay runs, current_stream is the parked stream that is being replayed, and all dead letters
-- up to after_position were tried. current_dead_letter is the one whose replay began last, null after its end was
-- recorded.
create table {control}.commands (
    id                  bigint generated always as identity primary key,
    root                bigint,
    projection_id       integer not null references {control}.projections,
    kind                text collate "C" not null check (kind in ('replay', 'discard')),
    dead_letter_ids     bigint[],
    stream_id           text collate "C",
    type                text collate "C",
    error               text,
    max_events          bigint not null,
    current_stream      text collate "C",
    after_position      bigint not null default 0,
    done                bigint not null default 0,
    failed              bigint not null default 0,
    current_dead_letter bigint,
    created_at          timestamptz not null default clock_timestamp(),
    ended_at            timestamptz
);
create index on {control}.commands (projection_id, id) where ended_at is null;
-- Also for the deletion of a projection, which searches for its commands. A partial index does not serve that
-- search.
create index on {control}.commands (projection_id, ended_at);
create index on {control}.commands (root) where root is not null;

-- The row identifies one life of the server. The table is UNLOGGED: a crash, an immediate stop and a promotion empty
-- it, an orderly restart keeps it, and a standby refuses to read it. A restored dump has the row in another table (oid)
-- or transaction (xmin). The first client that finds the table empty adds a row.
create unlogged table {control}.incarnation (
    singleton boolean primary key default true check (singleton),
    id        bigint not null default ('x' || translate(left(gen_random_uuid()::text, 18), '-', ''))::bit(64)::bigint
);
insert into {control}.incarnation default values;

-- Operations that run code of a projection: a living node that registers it carries them out. holds are the names of the
-- projections that stand still meanwhile: held_by in their rows is the operation. node carries it out, and raises epoch when it
-- begins. hook_runs are the runs of the hook that have not returned. ended_at, code (that of
-- engine.OperationFailure) and error say how it ended; until then, error is why the last try failed.
create table {control}.operations (
    id           bigint generated always as identity primary key,
    tenant       text collate "C" not null references {control}.tenants on delete cascade,
    name         text collate "C" not null,
    kind         text collate "C" not null check (kind in ('rebuild', 'swap', 'drop')),
    holds        text[] not null,
    options      text not null,
    node         uuid,
    epoch        bigint not null default 0,
    hook_runs    bigint[] not null default '{}',
    requested_at timestamptz not null default clock_timestamp(),
    started_at   timestamptz,
    ended_at     timestamptz,
    code         text collate "C",
    error        text
);
create unique index operations_open_idx on {control}.operations (tenant, name) where ended_at is null;
create index on {control}.operations (tenant, name, ended_at) where ended_at is not null;

-- Returns the incarnation of the server. What a client keeps in memory is valid within one incarnation only. Raises
-- MR005 if the table is empty, and MR006 on a standby. Locks nothing. Needs no index.
create function {control}.incarnation() returns bigint language plpgsql stable as $$
declare
    current bigint;
begin
    if pg_is_in_recovery() then
        raise exception 'the server is a standby' using errcode = 'MR006';
    end if;
    select i.id # (i.tableoid::bigint << 32) # i.xmin::text::bigint into current from {control}.incarnation i;
    if not found then
        raise exception 'the server has no incarnation yet' using errcode = 'MR005';
    end if;
    return current;
end
$$;

-- Raises MR004 if the server is no longer in the incarnation in which a client read its data. Every fenced write calls
-- it. Locks nothing. Needs no index. The functions of the fence have a search path of their own: PL/pgSQL plans its
-- statements again whenever the path changes, and batches of different tenants have different paths.
create function {control}.check_incarnation(expected bigint) returns void language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    perform 1 from {control}.incarnation i where i.id # (i.tableoid::bigint << 32) # i.xmin::text::bigint = expected;
    if not found then
        raise exception 'the server crashed or was replaced since this was read' using errcode = 'MR004';
    end if;
end
$$;

-- The first half of the fence. Raises MR001 unless this owner holds the lease under this epoch, in the incarnation in
-- which it was read. Locks nothing. Index: leases_pkey.
create function {control}.check_lease(lease integer, lease_owner uuid, lease_epoch bigint, incarnation bigint) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    perform {control}.check_incarnation(incarnation);
    perform 1 from {control}.leases l where l.id = lease and l.owner = lease_owner and l.epoch = lease_epoch;
    if not found then
        raise exception 'lease % is not held by % under epoch %', lease, lease_owner, lease_epoch using errcode = 'MR001';
    end if;
end
$$;

-- The second half of the fence: moves the checkpoint. Raises MR002 if the handler ended the batch's transaction, MR004
-- if the incarnation changed, and MR001 if the lease's owner, epoch or checkpoint changed. A commit in the same message
-- then fails too. A replay passes its checkpoint as both old and new, and leaves crash_count as it is. Lock: the row of
-- leases FOR NO KEY UPDATE, until the commit that follows at once. Index: leases_pkey.
create function {control}.advance(batch text, lease integer, lease_owner uuid, lease_epoch bigint, incarnation bigint, old bigint, new bigint)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('millrace.batch', true) is distinct from batch then
        raise exception 'the handler ended the transaction of its batch' using errcode = 'MR002';
    end if;
    perform {control}.check_incarnation(incarnation);
    update {control}.leases l set checkpoint = new, crash_count = case when new > old then 0 else l.crash_count end
     where l.id = lease and l.owner = lease_owner and l.epoch = lease_epoch and l.checkpoint = old;
    if not found then
        raise exception 'lease % is not held by % under epoch % at checkpoint %', lease, lease_owner, lease_epoch, old
            using errcode = 'MR001';
    end if;
end
$$;

-- Raises MR001 unless the operation is open and nothing took it over since that epoch. Locks nothing. Index:
-- operations_pkey.
create function {control}.check_operation(operation bigint, operation_epoch bigint) returns void language plpgsql stable as $$
begin
    perform 1 from {control}.operations o where o.id = operation and o.epoch = operation_epoch and o.ended_at is null;
    if not found then
        raise exception 'operation % was ended or taken over since epoch %', operation, operation_epoch using errcode = 'MR001';
    end if;
end
$$;

-- Raises MR002 if a hook ended its transaction, whose name is batch (null: any). Locks nothing. Needs no index.
create function {control}.check_transaction(batch text) returns void language plpgsql as $$
begin
    if batch <> coalesce(current_setting('millrace.batch', true), '') then raise exception 'the hook ended its transaction' using errcode = 'MR002'; end if;
end
$$;

-- Ends an operation and lets its projections run again. Raises MR001 unless the operation is open, and nothing took it over
-- since that epoch, and MR002 if the hook ended the transaction batch (null: no hook ran). Notifies the nodes over the channel.
-- Indexes: operations_pkey, projections_tenant_name_partition_key. Locks, until the commit: the rows of the operation and the
-- projections FOR NO KEY UPDATE, and the queue of notifications during the commit.
create function {control}.end_operation(batch text, operation bigint, operation_epoch bigint, failure text, message text, channel text)
returns void language plpgsql as $$
begin
    perform {control}.check_transaction(batch);
    update {control}.operations o set ended_at = clock_timestamp(), code = failure, error = message
     where o.id = operation and o.epoch = operation_epoch and o.ended_at is null;
    if not found then
        raise exception 'operation % was ended or taken over since epoch %', operation, operation_epoch using errcode = 'MR001';
    end if;
    perform {control}.release_holds(operation, channel);
end
$$;

-- Lets the projections that an operation holds run again, and notifies the nodes over the channel. Index:
-- projections_tenant_name_partition_key. Locks, until the commit: the rows of the projections FOR NO KEY UPDATE, and the
-- queue of notifications during the commit.
create function {control}.release_holds(operation bigint, channel text) returns void language plpgsql as $$
declare
    released integer;
begin
    for released in
        update {control}.projections p set held_by = null
          from {control}.operations o
         where o.id = operation and p.tenant = o.tenant and p.name = any(o.holds) and p.held_by = operation
        returning p.id
    loop
        perform pg_notify(channel, released::text);
    end loop;
end
$$;

-- Raises MR003 in a keyed append that met a version conflict, so that the claim of the key is undone. Locks nothing.
-- Needs no index.
create function {control}.raise_version_conflict() returns bigint language plpgsql volatile as $$
begin
    raise exception 'version conflict' using errcode = 'MR003';
end
$$;

-- The trigger function of a tenant's events while the tenant is archived (MR007), is being dropped (MR008), or is being
-- copied from another store (MR009). The trigger's first argument is the SQLSTATE; if it is empty, the tenant is open.
-- The second one is the id of the copy, which alone may insert. Locks nothing. Needs no index.
create function {control}.refuse_append() returns trigger language plpgsql as $$
begin
    if tg_argv[0] = '' or tg_argv[0] = 'MR009' and tg_argv[1] = current_setting('millrace.copy', true) then
        return null;
    end if;
    raise exception '%', case tg_argv[0] when 'MR007' then 'the tenant is archived' when 'MR008' then 'the tenant is being dropped'
                         else 'the tenant is being copied from another store' end
        using errcode = tg_argv[0];
end
$$;

-- Locks a command of any partition and its root, the root first, and returns the command. The returned max_events is
-- the limit minus the dead letters that the other partitions have done. A replay in progress there counts as done. It
-- returns no row if the command has ended. Indexes: commands_pkey, commands_root_idx. Locks: both rows FOR NO KEY
-- UPDATE until the commit.
create function {control}.lock_command(command bigint) returns setof {control}.commands language plpgsql as $$
declare
    c {control}.commands;
begin
    perform 1 from {control}.commands r where r.id = (select coalesce(x.root, x.id) from {control}.commands x where x.id = command)
        for no key update;
    select * into c from {control}.commands where id = command and ended_at is null for no key update;
    if found then
        c.max_events := c.max_events - (select coalesce(sum(x.done + x.failed + (x.ended_at is null and x.current_dead_letter is not null)::integer), 0)
                                          from {control}.commands x
                                         where x.id <> c.id and (x.id = c.root or x.root = coalesce(c.root, c.id)));
        return next c;
    end if;
end
$$;

-- Ends a replay command: at its limit, after its last event, or because it was cancelled. A dead letter whose replay
-- began and did not end is parked again. If a parked stream is left in the middle, its next event is blocked by no
-- earlier event. Returns the number of replayed events. The caller owns the lease or has locked it. Indexes:
-- commands_pkey, dead_letters_pkey, the partial indexes of dead_letters. Locks, until the commit: the rows of the
-- command and the dead letters FOR NO KEY UPDATE.
create function {control}.end_replay(lease integer, command bigint) returns bigint language plpgsql as $$
declare
    c {control}.commands;
begin
    update {control}.commands set ended_at = clock_timestamp() where id = command and ended_at is null returning * into c;
    update {control}.dead_letters d set state = 'parked', open_replays = 0
     where d.id = c.current_dead_letter and d.projection_id = lease and d.state = 'replaying';
    update {control}.dead_letters d set blocked_by_stream = false
     where d.blocked_by_stream
       and d.id = (select x.id from {control}.dead_letters x
                    where x.projection_id = lease and x.stream_id = c.current_stream and x.state in ('parked', 'replaying')
                    order by x.position limit 1);
    return c.done;
end
$$;

-- Begins the next replay of a command, under the fence, and returns its dead letter. If no work is left, it ends the
-- command and returns no row. last_begun is the dead letter whose replay the caller began last: its process did not
-- crash. A dead letter of a parked stream selects the whole stream. The stream is replayed in order, until a replay
-- fails. dead_letter_ids are searched between the positions of the first and the last of them. Indexes: leases_pkey,
-- commands_pkey, dead_letters_pkey, the partial indexes of dead_letters, parked_streams_pkey. Locks, until the commit:
-- the row of leases FOR SHARE; those of the command, the dead letter and its parked stream FOR NO KEY UPDATE.
create function {control}.begin_replay(lease integer, lease_owner uuid, lease_epoch bigint, command bigint, last_begun bigint)
returns setof {control}.dead_letters language plpgsql as $$
declare
    c {control}.commands;
    chosen {control}.dead_letters;
    low bigint := 1;
    high bigint := 9223372036854775807;
begin
    perform 1 from {control}.leases l where l.id = lease and l.owner = lease_owner and l.epoch = lease_epoch for share;
    if not found then
        raise exception 'lease % is not held by % under epoch %', lease, lease_owner, lease_epoch using errcode = 'MR001';
    end if;
    select * into c from {control}.lock_command(command);
    if not found then
        return;
    end if;
    -- If the stream was released and parked again since, it is no longer the stream that this command replays.
    perform 1 from {control}.parked_streams s where s.projection_id = lease and s.stream_id = c.current_stream and s.last_command = command;
    if not found then
        c.current_stream := null;
    end if;
    if c.done + c.failed < c.max_events then
        select * into chosen from {control}.dead_letters d
         where d.projection_id = lease and d.stream_id = c.current_stream and d.state in ('parked', 'replaying')
         order by d.position limit 1;
        if not found then
            c.current_stream := null;
            if c.dead_letter_ids is not null then
                select coalesce(min(x.position), 1), coalesce(max(x.position), 0) into low, high
                  from {control}.dead_letters x where x.projection_id = lease and x.id = any(c.dead_letter_ids);
            end if;
            select d.* into chosen from {control}.dead_letters d
              left join {control}.parked_streams s on s.projection_id = lease and s.stream_id = d.stream_id
             where d.projection_id = lease and d.state in ('parked', 'replaying') and d.position > c.after_position
               and d.position between low and high
               and (coalesce(s.last_command, d.last_command) <> command or s.stream_id is null and d.open_replays > 0)
               and (c.dead_letter_ids is null or d.id = any(c.dead_letter_ids)) and (c.stream_id is null or d.stream_id = c.stream_id)
               and (c.type is null or d.type = c.type) and (c.error is null or strpos(d.error, c.error) > 0)
             order by d.position limit 1;
            c.after_position := coalesce(chosen.position - 1, c.after_position);
            update {control}.parked_streams s set last_command = command
             where s.projection_id = lease and s.stream_id = chosen.stream_id;
            if found then
                c.current_stream := chosen.stream_id;
                select * into chosen from {control}.dead_letters d
                 where d.projection_id = lease and d.stream_id = c.current_stream and d.state in ('parked', 'replaying')
                 order by d.position limit 1;
            end if;
        end if;
    end if;
    update {control}.commands
       set current_stream = c.current_stream, after_position = c.after_position, current_dead_letter = coalesce(chosen.id, current_dead_letter)
     where id = command;
    if chosen.id is null then
        perform {control}.end_replay(lease, command);
        return;
    end if;
    -- If the stream of the previous dead letter was parked meanwhile, the command continues without that dead letter.
    update {control}.dead_letters d set state = 'parked', open_replays = 0
     where d.id = c.current_dead_letter and d.id <> chosen.id and d.projection_id = lease and d.state = 'replaying';
    return query update {control}.dead_letters d
       set state = 'replaying', last_command = command,
           open_replays = greatest(d.open_replays, 1) + case when d.open_replays = 0 or d.id = last_begun then 0 else 1 end
     where d.id = chosen.id and d.state in ('parked', 'replaying') -- an earlier replay of it may have committed only now
    returning d.*;
end
$$;

-- Discards the dead letters of a command, ends it, and returns their number. Other events of a parked stream stay
-- parked. A stream without parked events continues. The caller owns the lease or has locked it. The select locks the
-- dead letters, because a replay whose answer was lost may commit meanwhile and resolve one of them. Indexes:
-- commands_pkey, the partial indexes of dead_letters, parked_streams_pkey. Locks, until the commit: the rows of the
-- command, the dead letters, their streams and the projection FOR NO KEY UPDATE or FOR UPDATE.
create function {control}.discard(lease integer, command bigint) returns bigint language plpgsql as $$
declare
    c {control}.commands;
    discarded bigint[];
    low bigint := 1;
    high bigint := 9223372036854775807;
begin
    select * into c from {control}.lock_command(command);
    if not found then
        return 0;
    end if;
    if c.dead_letter_ids is not null then
        select coalesce(min(x.position), 1), coalesce(max(x.position), 0) into low, high
          from {control}.dead_letters x where x.projection_id = lease and x.id = any(c.dead_letter_ids);
    end if;
    with changed as (
        update {control}.dead_letters d set state = 'discarded', open_replays = 0, last_command = command, ended_at = clock_timestamp()
          from (select x.id from {control}.dead_letters x
                 where x.projection_id = lease and x.state in ('parked', 'replaying') and x.position between low and high
                   and (c.dead_letter_ids is null or x.id = any(c.dead_letter_ids)) and (c.stream_id is null or x.stream_id = c.stream_id)
                   and (c.type is null or x.type = c.type) and (c.error is null or strpos(x.error, c.error) > 0)
                 order by x.position limit greatest(c.max_events, 0) for no key update) x
         where d.id = x.id
        returning d.id
    )
    select coalesce(array_agg(id), '{}') into discarded from changed;
    -- The first event that is left of a stream is blocked by no other event.
    with streams as (
        select s.stream_id, (select d.id from {control}.dead_letters d
                              where d.projection_id = lease and d.stream_id = s.stream_id and d.state in ('parked', 'replaying')
                              order by d.position limit 1) as first
          from {control}.parked_streams s
         where s.projection_id = lease
           and s.stream_id in (select d.stream_id from {control}.dead_letters d where d.id = any(discarded))
    ), released as (
        delete from {control}.parked_streams s using streams
         where s.projection_id = lease and s.stream_id = streams.stream_id and streams.first is null
    )
    update {control}.dead_letters d set blocked_by_stream = false from streams where d.id = streams.first and d.blocked_by_stream;
    update {control}.projections p set parked = p.parked - cardinality(discarded) where p.id = lease and cardinality(discarded) > 0;
    update {control}.commands set done = cardinality(discarded), ended_at = clock_timestamp() where id = command;
    return cardinality(discarded);
end
$$;

-- Revokes rights on a table from every role except its owner. Default privileges grant the same rights on all tables,
-- but only the owner may change some of them. Roles that could update the table may still update the column updatable,
-- if it is not null. The caller names the table by its row type, because a quoted name
-- would have to be quoted twice. Lock: the table's row in the catalog, until the commit. Index: that of the catalog.
create function {control}.revoke_from_others(rights text, row_type regtype, updatable text default null) returns void language plpgsql as $$
declare
    target regclass := (select t.typrelid from pg_catalog.pg_type t where t.oid = row_type);
    others text;
    writers text;
begin
    select string_agg(distinct case when a.grantee = 0 then 'public' else quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) end, ', ')
      into writers
      from pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
     where c.oid = target and a.grantee <> c.relowner and a.privilege_type = 'UPDATE';
    select string_agg(distinct case when a.grantee = 0 then 'public' else quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) end, ', ')
      into others
      from pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
     where c.oid = target and a.grantee <> c.relowner;
    if others is not null then
        execute format('revoke %s on %s from %s', rights, target, others);
    end if;
    if updatable is not null and writers is not null then
        execute format('grant update (%I) on %s to %s', updatable, target, writers);
    end if;
end
$$;

select {control}.revoke_from_others('insert, update, delete, truncate', pg_typeof(null::{control}.schema_versions));
select {control}.revoke_from_others('insert, update, delete, truncate', pg_typeof(null::{control}.tenants), 'paused');
