package chaos_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/projection"
)

// ownershipLogSQL creates a log of the leases: each change of owner or epoch, and whether the previous owner's
// heartbeat had expired by then. A node that was marked dead because its session lock was missing counts as not
// expired. A heartbeat that came while the lease was claimed came too late. A node that is draining and has expired its
// own heartbeat owns nothing any more. The log names the projection, because leases go with their tenants and with
// their partitions.
func ownershipLogSQL(lease time.Duration) string {
	return fmt.Sprintf(`
create table public.ownership (id bigint generated always as identity, at timestamptz not null, lease integer not null,
	tenant text not null, name text not null, partition integer not null, suspended boolean not null,
	last_owner uuid, owner uuid, last_epoch bigint not null, epoch bigint not null, last_beat timestamptz not null, expired boolean not null);
create function public.note_owner() returns trigger language plpgsql as $$
begin
	insert into public.ownership (at, lease, tenant, name, partition, suspended, last_owner, owner, last_epoch, epoch, last_beat, expired)
	select clock_timestamp(), new.id, p.tenant, p.name, p.partition, p.suspended, old.owner, new.owner, old.epoch, new.epoch,
		coalesce((select heartbeat_at from millrace.nodes n where n.id = old.owner), 'epoch'),
		not exists (select from millrace.nodes n where n.id = old.owner and n.heartbeat_at < statement_timestamp()
			and n.heartbeat_at + %d * interval '1 millisecond' > clock_timestamp()
			and not (n.draining and n.expires_at <= n.heartbeat_at))
	  from millrace.projections p where p.id = new.id;
	return null;
end $$;
create trigger note_owner after update of owner on millrace.leases for each row
	when (old.owner is distinct from new.owner or old.epoch is distinct from new.epoch) execute function public.note_owner()`, lease.Milliseconds())
}

// change is one entry of the log. An owner is a node's id; empty: none.
type change struct {
	at               time.Time
	lease            int
	of               projection.ID
	suspended        bool // its tenant was archived, paused or being dropped
	from, to         string
	lastEpoch, epoch int64
	lastBeat         time.Time // of from
	expired          bool      // the heartbeat of from
}

// recovery is how long after a trouble a process may still seem dead.
const recovery = 2 * time.Second

func (t trouble) covers(at time.Time) bool {
	return !at.Before(t.from) && (t.to.IsZero() || at.Before(t.to.Add(recovery)))
}

// takeover is the change of a lease from one owner to another.
type takeover struct {
	of       projection.ID
	from, to string
	at       time.Time
	gap      time.Duration // without an owner that could work
	released bool          // by the previous owner
}

// ownership is the result of analyze.
type ownership struct {
	takeovers []takeover
	findings  []finding
}

// some returns the takeovers of leases that were released, or of those that were not.
func (o ownership) some(released bool) []takeover {
	return slices.DeleteFunc(slices.Clone(o.takeovers), func(t takeover) bool { return t.released != released })
}

// longest returns the takeover with the longest gap.
func longest(some []takeover) (longest takeover) {
	for _, t := range some {
		if t.gap > longest.gap {
			longest = t
		}
	}
	return longest
}

// median returns the median gap.
func median(some []takeover) time.Duration {
	if len(some) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(some), func(a, b takeover) int { return cmp.Compare(a.gap, b.gap) })
	return sorted[len(sorted)/2].gap
}

// analyze compares the ownership log with what faults did to the nodes.
//
// A lease has no owner from its release, or from when a fault struck its owner. A lease that is taken from a node that
// no fault has struck, and whose heartbeat had not expired, is stolen.
func analyze(changes []change, troubles []trouble, processes []*process, outages []outage) (o ownership) {
	owners := make(map[string]*process, len(processes))
	for _, p := range processes {
		owners[p.identity()] = p
	}
	free := make(map[int]change) // by lease
	for _, c := range changes {
		if c.to != "" && c.epoch <= c.lastEpoch {
			o.findings = append(o.findings, finding{kindEpoch,
				c.of, 0, fmt.Sprintf("%d follows %d from %.8s to %.8s", c.epoch, c.lastEpoch, c.from, c.to)})
		}
		switch {
		case c.to == "":
			free[c.lease] = c
		case c.from == "":
			if release, ok := free[c.lease]; ok && !release.suspended && release.from != c.to {
				o.takeovers = append(o.takeovers, takeover{c.of,
					release.from, c.to, c.at, ownerless(release.at, c.at, outages), true})
			}
		case c.from != c.to:
			struck := c.at
			excused := c.expired
			for _, t := range troubles {
				if t.who == owners[c.from] && t.who != nil && t.covers(c.at) {
					excused = true
					if t.from.Before(struck) {
						struck = t.from
					}
				}
			}
			o.takeovers = append(o.takeovers, takeover{c.of,
				c.from, c.to, c.at, ownerless(struck, c.at, outages), false})
			if !excused {
				o.findings = append(o.findings, finding{kindStolen, c.of, 0,
					fmt.Sprintf("by %s from %s at %s, whose heartbeat of %s had not expired", named(owners, c.to),
						named(owners, c.from), c.at.Format(clock), c.lastBeat.Format(clock))})
			}
		}
	}
	return o
}

const clock = "15:04:05.000"

func named(owners map[string]*process, id string) string {
	if p := owners[id]; p != nil {
		return p.String()
	}
	return id
}

// ownerless returns how long it is from one time to another, without outages. Work that an outage interrupts begins
// again, so the time before it does not count.
func ownerless(from, to time.Time, outages []outage) time.Duration {
	for _, o := range slices.SortedFunc(slices.Values(outages),
		func(a, b outage) int { return a.from.Compare(b.from) }) {
		if !o.to.Before(from) && o.from.Before(to) {
			from = o.to
		}
	}
	return max(0, to.Sub(from))
}
