-- The functions of the fence, for a store whose functions are those of an older program. Old and new programs call them
-- alike. Who changes them raises their version, so that existing stores get the change: see fence_is_current.sql.
--
-- The owner is compared within coalesce, which no index serves. Otherwise the planner may prefer leases_owner_idx, and
-- each batch reads all leases of its node. That happens after an ANALYZE while no lease had an owner, as after a restart
-- of all nodes.
--
-- The incarnation is compared as in the functions incarnation and check_incarnation. The latter is called only to find
-- out why nothing was found, since each call would make the fence slower. Locks: the migration lock is held. Needs no
-- index.

-- The first half of the fence. Raises MR001 unless this owner holds the lease under this epoch, and MR004 if the
-- incarnation has changed since the events were read. Locks nothing. Index: leases_pkey.
create or replace function {control}.check_lease(lease integer, lease_owner uuid, lease_epoch bigint, incarnation bigint)
returns void language plpgsql stable set search_path = pg_catalog, pg_temp as $$
/* Version of the fence: 1 */
begin
    perform 1 from {control}.leases l
      where l.id = lease and coalesce(l.owner = lease_owner, false) and l.epoch = lease_epoch
        and incarnation = (select i.id # (i.tableoid::bigint << 32) # i.xmin::text::bigint from {control}.incarnation i);
    if not found then
        perform {control}.check_incarnation(incarnation);
        raise exception 'lease % is not held by % under epoch %', lease, lease_owner, lease_epoch using errcode = 'MR001';
    end if;
end
$$;

-- The second half of the fence: moves the checkpoint. Raises MR002 if the handler ended the batch's transaction, MR004
-- if the incarnation changed, and MR001 if the lease's owner, epoch or checkpoint changed. A commit in the same message
-- then fails too. A replay passes its checkpoint as both old and new, and leaves crash_count as it is. Lock: the row of
-- leases FOR NO KEY UPDATE, until the commit that follows at once. Index: leases_pkey.
create or replace function {control}.advance(batch text, lease integer, lease_owner uuid, lease_epoch bigint, incarnation bigint,
    old bigint, new bigint)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
/* Version of the fence: 1 */
begin
    if current_setting('millrace.batch', true) is distinct from batch then
        raise exception 'the handler ended the transaction of its batch' using errcode = 'MR002';
    end if;
    update {control}.leases l set checkpoint = new, crash_count = case when new > old then 0 else l.crash_count end
     where l.id = lease and coalesce(l.owner = lease_owner, false) and l.epoch = lease_epoch and l.checkpoint = old
       and incarnation = (select i.id # (i.tableoid::bigint << 32) # i.xmin::text::bigint from {control}.incarnation i);
    if not found then
        perform {control}.check_incarnation(incarnation);
        raise exception 'lease % is not held by % under epoch % at checkpoint %', lease, lease_owner, lease_epoch, old
            using errcode = 'MR001';
    end if;
end
$$;
