-- Writes some 0.4 MB into a temporary file in the database's own tablespace, where most read models are. An insert
-- would succeed on a full disk while existing pages have room. Locks nothing, needs no index.
select count(*) from generate_series(1, 20000)
