-- Inserts the row that counts what command $1 refused of stream $3 of projection $2, with one dead letter: see refused_row.sql. Indexes:
-- projections_pkey, those of commands. Locks: the new row, and that of the projection FOR KEY SHARE until the commit.
insert into {control}.commands (root, {projection}, kind, stream_id, max_events, failed, created_at, ended_at)
select $1::bigint, p.id, 'replay', $3::text, -1, 1, {now}, {now} from {control}.projections p where p.id = $2::integer
