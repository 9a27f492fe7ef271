-- Records for tenant $1, which is locked, that no erasure pauses it any more. It scans the erasures. Needs no index. Locks: the rows.
update {control}.erasures set pauses = false where tenant = {tenant_id $1::text} and pauses
