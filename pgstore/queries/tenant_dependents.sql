-- Returns the objects outside of schema $1 that DROP SCHEMA would drop only with CASCADE: views, foreign keys,
-- functions and so on that depend on objects in it, and extensions that are installed in it. It follows dependencies
-- from the schema until they leave it. Rules, triggers, defaults and policies are where their tables are. Locks
-- nothing. Indexes: those of the catalogs.
with recursive reached (classid, objid, objsubid, outside) as (
    select 'pg_namespace'::regclass::oid, n.oid, 0, false from pg_namespace n where n.nspname = $1::text
    union
    select d.classid, d.objid, d.objsubid, d.deptype = 'n' and place.schema is distinct from $1::text
      from reached r
      join pg_depend d on d.refclassid = r.classid and d.refobjid = r.objid and (r.objsubid = 0 or r.objsubid = d.refobjsubid)
     cross join lateral (
           select case d.classid
                      when 'pg_rewrite'::regclass then (select c.relnamespace::regnamespace from pg_rewrite o join pg_class c on c.oid = o.ev_class where o.oid = d.objid)
                      when 'pg_trigger'::regclass then (select c.relnamespace::regnamespace from pg_trigger o join pg_class c on c.oid = o.tgrelid where o.oid = d.objid)
                      when 'pg_attrdef'::regclass then (select c.relnamespace::regnamespace from pg_attrdef o join pg_class c on c.oid = o.adrelid where o.oid = d.objid)
                      when 'pg_policy'::regclass then (select c.relnamespace::regnamespace from pg_policy o join pg_class c on c.oid = o.polrelid where o.oid = d.objid)
                      else to_regnamespace((pg_identify_object(d.classid, d.objid, d.objsubid)).schema)
                  end as namespace) at
     cross join lateral (select (select n.nspname::text from pg_namespace n where n.oid = at.namespace) as schema) place
     where not r.outside and d.deptype in ('n', 'a', 'i', 'P', 'S')
)
select distinct pg_describe_object(classid, objid, objsubid) from reached where outside order by 1
