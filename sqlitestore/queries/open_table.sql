-- Reverses close_table.sql. Lock: that of the file's writer. Needs no index.
drop trigger if exists {table}_insert_closed;
drop trigger if exists {table}_update_closed;
drop trigger if exists {table}_delete_closed
