-- Reports whether there are events with $1 < position <= $2 in the slots $3 <= slot < $4, of the types $5 (null: any).
-- Index: events_pkey. Locks nothing.
select exists (select from {tenant}.events e
                where e.global_seq > $1::bigint and e.global_seq <= $2::bigint and e.slot >= $3::integer and e.slot < $4::integer
                  and ($5::text[] is null or e.type = any($5::text[])))
