-- Inserts aliases of tenant $1. $2 to $4 are the columns of transfer.Aliases. Index: aliases_pkey. Locks: the new rows, and their
-- tenant FOR KEY SHARE.
insert into {control}.aliases (tenant, name, stream_id, created_at)
select $1::text, a.name, a.stream_id, timestamptz 'epoch' + a.created_at * interval '1 microsecond'
  from unnest($2::text[], $3::text[], $4::bigint[]) as a (name, stream_id, created_at)
