-- Parks one event. Index: dead_letters_projection_id_position_key. Locks: the new row, and the row of projections, whose
-- count of failures ends here, FOR NO KEY UPDATE until the commit.
with done as (
    update {control}.projections p set failing_position = 0, attempts = 0, failing_since = null, deaths = 0
      from {control}.projections old
     where p.id = $1::integer and old.id = p.id
    returning case when old.failing_position = $2::bigint then old.failing_since end as since
)
insert into {control}.dead_letters
    (projection_id, position, stream_id, stream_version, type, error, stack, attempts, first_failed_at, last_failed_at)
select $1::integer, $2::bigint, $3::text, $4::bigint, $5::text, $6::text, $7::text, $8::integer,
       coalesce(done.since, clock_timestamp()), clock_timestamp()
  from done
