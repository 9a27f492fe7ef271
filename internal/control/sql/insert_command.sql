-- Inserts rows of a command on the dead letters of the projections $2, and returns their ids. $1 the first row of the
-- command, null in that row, $3 kind, $4 to $7 the filter, $8 the limit for all rows together. Indexes: those of commands.
-- Locks: the new rows, and those of projections FOR KEY SHARE until the commit.
insert into {control}.commands (root, {projection}, kind, dead_letter_ids, stream_id, type, error, max_events, created_at)
select $1::bigint, list.value, $3::text, $4::bigint[], $5::text, $6::text, $7::text, $8::bigint, {now} from {rows $2::integer[]}
returning id
