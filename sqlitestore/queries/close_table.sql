-- Makes all writes to {table} fail with {message}, also those of older programs and of other programs. The functions
-- that run a statement recognise the message. Lock: that of the file's writer. Needs no index.
create trigger {table}_insert_closed before insert on {table} begin select raise(abort, {message}); end;
create trigger {table}_update_closed before update on {table} begin select raise(abort, {message}); end;
create trigger {table}_delete_closed before delete on {table} begin select raise(abort, {message}); end
