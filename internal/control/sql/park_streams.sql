-- Parks the streams $2 for projection $1. Index: parked_streams_pkey. Locks: the new rows.
insert into {control}.parked_streams ({projection}, stream_id)
select $1::integer, list.value from {rows $2::text[]} where true
    on conflict ({projection}, stream_id) do nothing
