-- Replaces the last errors of the projections of tenant $1 by the text $3, if they are of events at the positions $2, or if it is not
-- known of which events they are. The reasons why projections have stopped at these events are replaced, too. Index: that of
-- projections by tenant, name and partition. Locks: the rows, which are locked already.
update {control}.projections
   set last_error = case when last_error is not null then $3::text end,
       failed_reason = case when failed_reason is not null and failing_position <> 0 then $3::text else failed_reason end
 where tenant = {tenant_id $1::text} and (failing_position = 0 or failing_position {in $2::bigint[]})
