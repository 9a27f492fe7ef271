-- Records that $4 more rows of part $2 of tenant $1 are copied, up to key $3. Lock: the row. Index: copied_parts_pkey.
insert into {control}.copied_parts as c (tenant, part, last_key, rows) values ($1::text, $2::text, $3::text, $4::bigint)
    on conflict (tenant, part) do update set last_key = excluded.last_key, rows = c.rows + excluded.rows
