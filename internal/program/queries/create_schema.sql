create schema {schema};
comment on schema {schema} is '{mark}'
