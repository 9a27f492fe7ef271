-- Returns the persistence of the table incarnation: u if it is UNLOGGED. Index: pg_class_oid_index. Locks nothing.
select c.relpersistence::text from {control}.incarnation i join pg_catalog.pg_class c on c.oid = i.tableoid
