-- Inserts streams. $1 and $2 are the columns of transfer.Streams. Index: streams_pkey. Locks: the new rows.
insert into {tenant}.streams (stream_id, version) select * from unnest($1::text[], $2::bigint[])
