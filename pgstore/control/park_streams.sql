-- Parks the streams $2 for projection $1. Index: parked_streams_pkey. Locks: the new rows.
insert into {control}.parked_streams (projection_id, stream_id) select distinct $1::integer, s from unnest($2::text[]) s
    on conflict (projection_id, stream_id) do nothing
