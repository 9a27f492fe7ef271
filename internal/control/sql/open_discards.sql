-- Returns the open discards of the partitions $1, with the partitions. Index: commands_projection_id_id_idx. It sorts
-- them. Locks nothing.
select c.{projection}, c.id from {control}.commands c
 where c.{projection} {in $1::integer[]} and c.ended_at is null and c.kind = 'discard' order by c.id
