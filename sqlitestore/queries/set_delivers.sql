-- Records which of the leases ?1 (JSON) are of projections that deliver: those with one of the names ?2 (JSON). Index: the
-- primary key. Lock: that of the file's writer.
update millrace_projections set delivers = not delivers
where id in (select value from json_each(?1)) and delivers <> (name in (select value from json_each(?2)))
