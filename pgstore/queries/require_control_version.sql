-- The body of a DO statement that raises unless the control schema is at version $1. Locks nothing. Index:
-- schema_versions_pkey.
begin
    if (select coalesce(max(version), 0) from {control}.schema_versions) <> $1 then
        raise exception 'the control schema is not at version %, after which these migrations begin', $1;
    end if;
end
