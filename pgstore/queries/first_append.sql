-- Returns the result of the first append with the key $1. Indexes: append_keys_pkey, append_results_pkey, and that of
-- events by stream and version. Locks nothing.
select k.stream_id, r.last_version,
array(select e.global_seq from {tenant}.events e where e.stream_id = k.stream_id
and e.stream_version between r.first_version and r.last_version order by e.stream_version)
from {tenant}.append_keys k join {tenant}.append_results r on r.key = k.key where k.key = $1
