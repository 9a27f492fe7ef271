-- Adds a notice to the owner of the file. ?1 tenant, ?2 projection, ?3 commanded, ?4 nodes, ?5 operations, as in engine.Notice. Lock:
-- that of the file's writer. Needs no index.
insert into millrace_notices (tenant, projection, commanded, nodes, operations) values (?1, ?2, ?3, ?4, ?5)
