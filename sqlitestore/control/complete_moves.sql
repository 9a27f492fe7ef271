-- Gives the file an id: files of the same path, on two computers, differ by it. Lock: that of the file's writer. Index: the primary key.
insert into millrace_moves (tenant, id, store, away, active, began_at) values (0, lower(hex(randomblob(6))), '', 0, 0, 0)
    on conflict (tenant) do nothing
returning tenant
