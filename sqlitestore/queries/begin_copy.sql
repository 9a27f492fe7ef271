-- Records the copy ?1 of the file, described as ?2, to ?3. Lock: that of the file's writer. Index: the primary key.
insert into millrace_copy (singleton, id, from_name, to_name) values (1, ?1, ?2, ?3)
