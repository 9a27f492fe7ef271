-- Two roles for a database with millrace. millrace_owner migrates, and owns everything of millrace's. millrace_app runs: it
-- cannot create, alter, drop or truncate anything of millrace's, and cannot change events. Run this file once in the database,
-- as a superuser: psql -v ON_ERROR_STOP=1 -1 -f roles.sql. Run it before the first Migrate or later: the last statement makes
-- millrace_owner the owner of what Migrate has made. If Options.Schema is not millrace, write its name there. Then give both
-- roles passwords.
do $$
begin
    -- Another database of the server may have them already.
    if to_regrole('millrace_owner') is null then
        create role millrace_owner login;
    end if;
    if to_regrole('millrace_app') is null then
        create role millrace_app login;
    end if;
end
$$;

-- The owner makes schemas: the control schema, and one for each tenant.
do $$
begin
    execute format('grant create on database %I to millrace_owner', current_database());
end
$$;

-- The owner also makes read models in public. Before PostgreSQL 15 every role may create there.
revoke create on schema public from public;
grant create on schema public to millrace_owner;

-- millrace_app may use what the owner makes from now on, the schemas of new tenants included. The migrations revoke the
-- rights that are for the owner alone: to change events, tenants, versions, erasures and moves.
alter default privileges for role millrace_owner grant usage on schemas to millrace_app;
alter default privileges for role millrace_owner grant select, insert, update, delete on tables to millrace_app;
alter default privileges for role millrace_owner grant usage on sequences to millrace_app;

-- Optional. Without it, Status does not see other roles' transactions that hold snapshots open.
grant pg_read_all_stats to millrace_app;

-- The same for what Migrate has made as another role. On a database without millrace it does nothing.
do $$
declare
    control constant text := 'millrace';
    schemas text[];
    taken text;
    object record;
begin
    if to_regclass(format('%I.tenants', control)) is null then
        return;
    end if;
    execute format('select array_agg(schema_name) || %L::text from %I.tenants', control, control) into schemas;
    foreach taken in array schemas loop
        execute format('alter schema %I owner to millrace_owner', taken);
        for object in select c.oid::regclass as name from pg_class c where c.relnamespace = quote_ident(taken)::regnamespace and c.relkind in ('r', 'p') loop
            execute format('alter table %s owner to millrace_owner', object.name);
        end loop;
        for object in select p.oid::regprocedure as name from pg_proc p where p.pronamespace = quote_ident(taken)::regnamespace loop
            execute format('alter function %s owner to millrace_owner', object.name);
        end loop;
        execute format('grant usage on schema %I to millrace_app', taken);
        execute format('grant select, insert, update, delete on all tables in schema %I to millrace_app', taken);
        execute format('grant usage on all sequences in schema %I to millrace_app', taken);
        if taken <> control then
            execute format('revoke update, delete on %I.events from millrace_app', taken);
        end if;
    end loop;
    execute format('revoke insert, update, delete on %I.tenants, %I.schema_versions from millrace_app', control, control);
    foreach taken in array array['erasures', 'moves'] loop -- the first erasure, and the first move, makes it
        if to_regclass(format('%I.%I', control, taken)) is not null then
            execute format('revoke insert, update, delete on %I.%I from millrace_app', control, taken);
        end if;
    end loop;
    -- To pause tenants.
    execute format('grant update (paused) on %I.tenants to millrace_app', control);
end
$$;
