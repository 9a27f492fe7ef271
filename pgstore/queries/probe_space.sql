-- Writes some 0.4 MB into a temporary file of the database's own tablespace, where most read models are: an insert into a
-- table finds room on a page that is there already, however full the disk is. Locks nothing, needs no index.
select count(*) from generate_series(1, 20000)
