-- The body of a DO statement that raises unless tenant $1 is at version $2. Locks nothing. Index: tenants_pkey.
begin
    if (select version from {control}.tenants where tenant = $1) is distinct from $2 then
        raise exception 'tenant % is not at version %, after which these migrations begin', $1, $2;
    end if;
end
