-- Inserts the server's incarnation if there is none. Index: incarnation_pkey. Locks: the new row.
insert into {control}.incarnation default values on conflict do nothing
