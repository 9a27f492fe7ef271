-- Gives the server an incarnation where it has none. Index: incarnation_pkey. Locks: the new row.
insert into {control}.incarnation default values on conflict do nothing
