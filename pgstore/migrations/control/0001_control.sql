-- The control schema: one per database, shared by all tenants. {control} is the quoted name of the schema. setup is how many
-- steps of the user's setup the tenant has had.
create table {control}.tenants (
    tenant      text collate "C" primary key,
    schema_name text collate "C" not null unique,
    version     integer not null,
    setup       integer not null default 0,
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
    draining      boolean not null default false,
    started_at   timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null
);

-- What changes rarely and may be wide. Its counterpart that changes with every batch is leases. failed is why the
-- projection stopped until somebody mends something, null where it did not; it counts for the epoch of its owner alone,
-- unless halted tells that the projection waits until somebody resumes it, whoever owns it. skipped counts the events that
-- it skipped, parked its dead letters that are parked or replaying. missing_object tells that the event at failing_position
-- waits for an object or a privilege that its handler needs; last_error says which.
-- crash_position is an event at which processes seem to end, and crash_attempts how many attempts at it were begun without a word on
-- how they ended.
-- token is random. The tokens of deliveries begin with it, so that receivers can detect repeats. It is the same for a renamed
-- projection, and for all partitions of one.
create table {control}.projections (
    id               integer generated always as identity primary key,
    tenant           text collate "C" not null references {control}.tenants,
    name             text collate "C" not null,
    partition        integer not null default 0,
    token            uuid not null default gen_random_uuid(),
    desired_state           text collate "C" not null default 'run' check (desired_state in ('run', 'pause')),
    failed           text,
    failed_epoch     bigint,
    halted           boolean not null default false,
    skipped          bigint not null default 0,
    parked           bigint not null default 0,
    failing_position bigint not null default 0,
    attempts         integer not null default 0,
    crash_position  bigint not null default 0,
    crash_attempts           integer not null default 0,
    crash_since     timestamptz,
    failing_since    timestamptz,
    last_error       text,
    last_error_at    timestamptz,
    missing_object   boolean not null default false,
    unique (tenant, name, partition)
);

-- One row that probes write, to find out whether the server takes writes. Its value has no meaning.
create table {control}.probe (
    only_one  boolean primary key default true check (only_one),
    probed_at timestamptz
);
insert into {control}.probe default values;

-- Narrow and half empty, so that every advance is a HOT update within the page. crash_count counts the claims in a row from
-- owners that died before they committed a batch or were at rest. free_since is when the lease was given back or made, null while owned.
create table {control}.leases (
    id         integer primary key references {control}.projections on delete cascade,
    owner      uuid,
    epoch      bigint not null default 0,
    checkpoint bigint not null default 0,
    crash_count    integer not null default 0,
    free_since timestamptz default clock_timestamp()
) with (fillfactor = 50);
-- For claims. An advance does not change the owner, so that it stays HOT.
create index on {control}.leases (owner);

-- Events that were put aside: they are referred to and not copied. behind tells that the event did not fail, but waits for
-- one of its stream. begun counts the replays of it that were begun without a word on how they ended, replays all that
-- failed, tried_by is the command that tried it last. Only the holder of the projection's lease changes what is parked.
create table {control}.dead_letters (
    id              bigint generated always as identity primary key,
    projection_id   integer not null references {control}.projections,
    position        bigint not null,
    stream_id       text collate "C" not null,
    stream_version  bigint not null,
    type            text collate "C" not null,
    behind          boolean not null default false,
    state           text collate "C" not null default 'parked' check (state in ('parked', 'replaying', 'resolved', 'discarded')),
    error           text not null,
    stack           text not null,
    attempts        integer not null,
    replays         integer not null default 0,
    begun           integer not null default 0,
    tried_by        bigint not null default 0,
    first_failed_at timestamptz not null,
    last_failed_at  timestamptz not null,
    ended_at        timestamptz,
    unique (projection_id, position)
) with (fillfactor = 80);
-- What is parked, in order; of a stream, in order; and what has ended, by age.
create index on {control}.dead_letters (projection_id, position) where state in ('parked', 'replaying');
create index on {control}.dead_letters (projection_id, stream_id, position) where state in ('parked', 'replaying');
create index on {control}.dead_letters (projection_id, ended_at) where state in ('resolved', 'discarded');
-- What failed and is parked, as the automatic replayer takes it: see next_due.sql.
create index on {control}.dead_letters (projection_id, replays, last_failed_at) where state in ('parked', 'replaying') and not behind;

-- Streams whose next events are parked behind those that are. tried_by is the command that tried the first of them last.
create table {control}.parked_streams (
    projection_id integer not null references {control}.projections,
    stream_id     text collate "C" not null,
    tried_by      bigint not null default 0,
    primary key (projection_id, stream_id)
);

-- What somebody wants to be done with dead letters, for the holder of the lease to do. letter, stream_id, type and error
-- say with which of them, null meaning any, most with how many. Of one that is under way, stream is the parked stream that
-- is being replayed whole, after the position up to which all have been tried, done and failed count what came of them. replaying is the letter whose
-- replay was begun last, null once it is known how that ended.
create table {control}.commands (
    id            bigint generated always as identity primary key,
    projection_id integer not null references {control}.projections,
    kind          text collate "C" not null check (kind in ('replay', 'discard')),
    letters       bigint[],
    stream_id     text collate "C",
    type          text collate "C",
    error         text,
    most          bigint not null,
    stream        text collate "C",
    after         bigint not null default 0,
    done          bigint not null default 0,
    failed        bigint not null default 0,
    replaying     bigint,
    created_at    timestamptz not null default clock_timestamp(),
    ended_at      timestamptz
);
create index on {control}.commands (projection_id, id) where ended_at is null;
create index on {control}.commands (projection_id, ended_at) where ended_at is not null;

-- One life of the server. The table is UNLOGGED, so a crash, an immediate stop and a promotion empty it, while an orderly
-- restart keeps it, and a standby refuses to read it. A dump restores its row under another oid or, without the schema, in
-- another transaction. The first client that finds the table empty adds a row.
create unlogged table {control}.incarnation (
    one boolean primary key default true check (one),
    id  bigint not null default ('x' || translate(left(gen_random_uuid()::text, 18), '-', ''))::bit(64)::bigint
);
insert into {control}.incarnation default values;

-- The incarnation of the server. Everything that a client keeps in memory is valid within one incarnation only. It raises
-- where the table is empty, and on a standby. Locks nothing. Needs no index.
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

-- Raises unless the server is still in the incarnation in which a client read its data. Every fenced write calls it. Locks
-- nothing. Needs no index.
create function {control}.check_incarnation(seen bigint) returns void language plpgsql stable as $$
begin
    perform 1 from {control}.incarnation i where i.id # (i.tableoid::bigint << 32) # i.xmin::text::bigint = seen;
    if not found then
        raise exception 'the server crashed or was replaced since this was read' using errcode = 'MR004';
    end if;
end
$$;

-- The first half of the fence: raises unless the lease is held by this owner under this epoch, in the incarnation in which
-- it was read. It locks nothing. Index: leases_pkey.
create function {control}.check_lease(lease integer, held_by uuid, held_epoch bigint, seen bigint) returns void
language plpgsql stable as $$
begin
    perform {control}.check_incarnation(seen);
    perform 1 from {control}.leases l where l.id = lease and l.owner = held_by and l.epoch = held_epoch;
    if not found then
        raise exception 'lease % is not held by % under epoch %', lease, held_by, held_epoch using errcode = 'MR001';
    end if;
end
$$;

-- The second half: moves the checkpoint, and raises unless exactly the row that the batch began with is still there,
-- in the same incarnation, and unless the transaction is still the one that the batch began. A replay leaves the checkpoint
-- where it is, and says nothing about the events behind it. When it raises, a commit that was sent along fails with it.
-- Lock: FOR NO KEY UPDATE on the lease's row, until the commit that follows at once. Index: leases_pkey.
create function {control}.advance(batch text, lease integer, held_by uuid, held_epoch bigint, seen bigint, old bigint, new bigint)
returns void language plpgsql as $$
begin
    if current_setting('millrace.batch', true) is distinct from batch then
        raise exception 'the handler ended the transaction of its batch' using errcode = 'MR002';
    end if;
    perform {control}.check_incarnation(seen);
    update {control}.leases l set checkpoint = new, crash_count = case when new > old then 0 else l.crash_count end
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

-- Ends a replay: at its limit, with nothing left, or since it was cancelled. A letter whose replay was begun, and did not come to an
-- end, is parked again. The next of a parked stream that is left in the middle waits for no other any more. The caller holds the
-- lease, or has it locked. Indexes: commands_pkey, dead_letters_pkey, the partial ones of dead_letters. Locks, until the commit: the
-- rows of the command and of the letters FOR NO KEY UPDATE.
create function {control}.end_replay(lease integer, command bigint) returns bigint language plpgsql as $$
declare
    c {control}.commands;
begin
    update {control}.commands set ended_at = clock_timestamp() where id = command and ended_at is null returning * into c;
    update {control}.dead_letters d set state = 'parked', begun = 0
     where d.id = c.replaying and d.projection_id = lease and d.state = 'replaying';
    update {control}.dead_letters d set behind = false
     where d.behind and d.id = (select x.id from {control}.dead_letters x
                                 where x.projection_id = lease and x.stream_id = c.stream and x.state in ('parked', 'replaying')
                                 order by x.position limit 1);
    return c.done;
end
$$;

-- Begins the next replay of a command, under the fence, and returns its dead letter: none where nothing is left to do, which
-- ends the command. mine is the letter whose replay the caller began last: it lived. A letter of a parked stream stands for
-- all of that stream, which are replayed in order, and after one that fails no more of them.
-- Letters that are given by their ids are looked for between the first and the last of these.
-- Indexes: leases_pkey, commands_pkey, dead_letters_pkey, the partial ones of dead_letters, parked_streams_pkey. Locks, until the commit: the row
-- of leases FOR SHARE, those of the command, the letter and its parked stream FOR NO KEY UPDATE.
create function {control}.begin_replay(lease integer, held_by uuid, held_epoch bigint, command bigint, mine bigint)
returns setof {control}.dead_letters language plpgsql as $$
declare
    c {control}.commands;
    letter {control}.dead_letters;
    low bigint := 1;
    high bigint := 9223372036854775807;
begin
    perform 1 from {control}.leases l where l.id = lease and l.owner = held_by and l.epoch = held_epoch for share;
    if not found then
        raise exception 'lease % is not held by % under epoch %', lease, held_by, held_epoch using errcode = 'MR001';
    end if;
    select * into c from {control}.commands where id = command and ended_at is null for no key update;
    if not found then
        return;
    end if;
    -- A stream that came free and was parked anew since is not the one that is being replayed.
    perform 1 from {control}.parked_streams s where s.projection_id = lease and s.stream_id = c.stream and s.tried_by = command;
    if not found then
        c.stream := null;
    end if;
    if c.done + c.failed < c.most then
        select * into letter from {control}.dead_letters d
         where d.projection_id = lease and d.stream_id = c.stream and d.state in ('parked', 'replaying')
         order by d.position limit 1;
        if not found then
            c.stream := null;
            if c.letters is not null then
                select coalesce(min(x.position), 1), coalesce(max(x.position), 0) into low, high
                  from {control}.dead_letters x where x.projection_id = lease and x.id = any(c.letters);
            end if;
            select d.* into letter from {control}.dead_letters d
              left join {control}.parked_streams s on s.projection_id = lease and s.stream_id = d.stream_id
             where d.projection_id = lease and d.state in ('parked', 'replaying') and d.position > c.after
               and d.position between low and high
               and (coalesce(s.tried_by, d.tried_by) <> command or s.stream_id is null and d.begun > 0)
               and (c.letters is null or d.id = any(c.letters)) and (c.stream_id is null or d.stream_id = c.stream_id)
               and (c.type is null or d.type = c.type) and (c.error is null or strpos(d.error, c.error) > 0)
             order by d.position limit 1;
            c.after := coalesce(letter.position - 1, c.after);
            update {control}.parked_streams s set tried_by = command
             where s.projection_id = lease and s.stream_id = letter.stream_id;
            if found then
                c.stream := letter.stream_id;
                select * into letter from {control}.dead_letters d
                 where d.projection_id = lease and d.stream_id = c.stream and d.state in ('parked', 'replaying')
                 order by d.position limit 1;
            end if;
        end if;
    end if;
    update {control}.commands set stream = c.stream, after = c.after, replaying = coalesce(letter.id, replaying) where id = command;
    if letter.id is null then
        perform {control}.end_replay(lease, command);
        return;
    end if;
    -- The command goes on without the letter that it had begun where that one's stream was parked meanwhile.
    update {control}.dead_letters d set state = 'parked', begun = 0
     where d.id = c.replaying and d.id <> letter.id and d.projection_id = lease and d.state = 'replaying';
    return query update {control}.dead_letters d
       set state = 'replaying', tried_by = command, begun = greatest(d.begun, 1) + case when d.begun = 0 or d.id = mine then 0 else 1 end
     where d.id = letter.id and d.state in ('parked', 'replaying') -- an earlier replay of it may have committed only now
    returning d.*;
end
$$;

-- Discards the dead letters of a command, and ends it: returns how many they were. What is left of a parked stream stays
-- parked; where nothing is, the stream goes on. The caller holds the lease, or has it locked. The letters are locked when they
-- are looked for: a replay whose answer was lost may commit only then, and resolve one of them.
-- Indexes: commands_pkey, the partial ones of dead_letters, parked_streams_pkey. Locks, until the commit: the rows of the
-- command, the letters, their streams and the projection FOR NO KEY UPDATE or FOR UPDATE.
create function {control}.discard(lease integer, command bigint) returns bigint language plpgsql as $$
declare
    c {control}.commands;
    picked bigint[];
    low bigint := 1;
    high bigint := 9223372036854775807;
begin
    select * into c from {control}.commands where id = command and ended_at is null for no key update;
    if not found then
        return 0;
    end if;
    if c.letters is not null then
        select coalesce(min(x.position), 1), coalesce(max(x.position), 0) into low, high
          from {control}.dead_letters x where x.projection_id = lease and x.id = any(c.letters);
    end if;
    with gone as (
        update {control}.dead_letters d set state = 'discarded', begun = 0, tried_by = command, ended_at = clock_timestamp()
          from (select x.id from {control}.dead_letters x
                 where x.projection_id = lease and x.state in ('parked', 'replaying') and x.position between low and high
                   and (c.letters is null or x.id = any(c.letters)) and (c.stream_id is null or x.stream_id = c.stream_id)
                   and (c.type is null or x.type = c.type) and (c.error is null or strpos(x.error, c.error) > 0)
                 order by x.position limit c.most for no key update) x
         where d.id = x.id
        returning d.id
    )
    select coalesce(array_agg(id), '{}') into picked from gone;
    -- The first that is left of a stream waits for nobody any more.
    with streams as (
        select s.stream_id, (select d.id from {control}.dead_letters d
                              where d.projection_id = lease and d.stream_id = s.stream_id and d.state in ('parked', 'replaying')
                              order by d.position limit 1) as first
          from {control}.parked_streams s
         where s.projection_id = lease
           and s.stream_id in (select d.stream_id from {control}.dead_letters d where d.id = any(picked))
    ), freed as (
        delete from {control}.parked_streams s using streams
         where s.projection_id = lease and s.stream_id = streams.stream_id and streams.first is null
    )
    update {control}.dead_letters d set behind = false from streams where d.id = streams.first and d.behind;
    update {control}.projections p set parked = p.parked - cardinality(picked) where p.id = lease and cardinality(picked) > 0;
    update {control}.commands set done = cardinality(picked), ended_at = clock_timestamp() where id = command;
    return cardinality(picked);
end
$$;

-- Takes rights on a table back from every role but its owner. Default privileges give the same rights on all tables, and some
-- tables are for the owner alone to change. The table is named by its row type: a name in quotes would have to be quoted
-- twice. Lock: the table's row in the catalog, until the commit. Index: that of the catalog.
create function {control}.withhold(rights text, row_type regtype) returns void language plpgsql as $$
declare
    withheld regclass := (select t.typrelid from pg_catalog.pg_type t where t.oid = row_type);
    others text;
begin
    select string_agg(distinct case when a.grantee = 0 then 'public' else quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) end, ', ')
      into others
      from pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
     where c.oid = withheld and a.grantee <> c.relowner;
    if others is not null then
        execute format('revoke %s on %s from %s', rights, withheld, others);
    end if;
end
$$;

select {control}.withhold('insert, update, delete, truncate', pg_typeof(null::{control}.schema_versions));
select {control}.withhold('insert, update, delete, truncate', pg_typeof(null::{control}.tenants));
