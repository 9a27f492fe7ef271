package chaos_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/projection"
)

// journalSQL makes a journal of the leases: who owned them, when, and whether the heartbeat of the last owner had run out
// by then. Unlike somebody who looks every so often, it misses no change. A node that was buried because its session lock was
// gone counts as one whose heartbeat had not run out; a heartbeat that came while the lease was being claimed came too late. A
// node that departed, and could not give back what it had, had nothing any more.
func journalSQL(lease time.Duration) string {
	return fmt.Sprintf(`
create table public.ownership (id bigint generated always as identity, at timestamptz not null, lease integer not null,
	last_owner uuid, owner uuid, last_epoch bigint not null, epoch bigint not null, last_beat timestamptz not null, ran_out boolean not null);
create function public.note_owner() returns trigger language plpgsql as $$
begin
	insert into public.ownership (at, lease, last_owner, owner, last_epoch, epoch, last_beat, ran_out)
	values (clock_timestamp(), new.id, old.owner, new.owner, old.epoch, new.epoch,
		coalesce((select heartbeat_at from millrace.nodes n where n.id = old.owner), 'epoch'),
		not exists (select from millrace.nodes n where n.id = old.owner and n.heartbeat_at < statement_timestamp()
			and n.heartbeat_at + %d * interval '1 millisecond' > clock_timestamp()
			and not (n.draining and n.expires_at <= n.heartbeat_at)));
	return null;
end $$;
create trigger note_owner after update of owner on millrace.leases for each row
	when (old.owner is distinct from new.owner or old.epoch is distinct from new.epoch) execute function public.note_owner()`, lease.Milliseconds())
}

// change is one entry of the journal. An owner is a node's id, empty where there is none.
type change struct {
	at               time.Time
	of               projection.ID
	from, to         string
	lastEpoch, epoch int64
	lastBeat         time.Time // of from
	ranOut           bool
}

// trouble is what a fault did to a node's process. It is over when the process can do its work again, or has ended for
// good; zero while it goes on.
type trouble struct {
	who      *life
	what     string
	from, to time.Time
}

// recovery is how long after a trouble a process may still look as if it were gone.
const recovery = 2 * time.Second

func (t trouble) covers(at time.Time) bool {
	return !at.Before(t.from) && (t.to.IsZero() || at.Before(t.to.Add(recovery)))
}

// takeover is a lease that came from one owner to another.
type takeover struct {
	of       projection.ID
	from, to string
	at       time.Time
	gap      time.Duration // without an owner that could do anything
	released bool          // the last owner gave it back
}

// record of ownership: what became of the leases.
type ownership struct {
	takeovers []takeover
	findings  []finding
}

// some are the takeovers of leases that were given back, or of those that were not.
func (o ownership) some(released bool) []takeover {
	return slices.DeleteFunc(slices.Clone(o.takeovers), func(t takeover) bool { return t.released != released })
}

// longest is the one of which the lease was without an owner for longest.
func longest(some []takeover) (longest takeover) {
	for _, t := range some {
		if t.gap > longest.gap {
			longest = t
		}
	}
	return longest
}

// median is how long a lease was without an owner in the middle of some takeovers.
func median(some []takeover) time.Duration {
	if len(some) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(some), func(a, b takeover) int { return cmp.Compare(a.gap, b.gap) })
	return sorted[len(sorted)/2].gap
}

// nobody is a time in which no node could own anything: all were down, or the server was.
type nobody struct{ from, to time.Time }

// judge reads the journal beside what was done to the nodes.
//
// A lease has no owner from when it was given back, or from when its owner was struck. What was taken from somebody who
// was not struck, and whose heartbeat had not run out, was stolen.
func judge(changes []change, troubles []trouble, lives []*life, away []nobody) (o ownership) {
	owners := make(map[string]*life, len(lives))
	for _, l := range lives {
		owners[l.identity()] = l
	}
	free := make(map[projection.ID]change)
	for _, c := range changes {
		if c.to != "" && c.epoch <= c.lastEpoch {
			o.findings = append(o.findings, finding{kindEpoch, c.of, 0, fmt.Sprintf("%d follows %d from %.8s to %.8s", c.epoch, c.lastEpoch, c.from, c.to)})
		}
		switch {
		case c.to == "":
			free[c.of] = c
		case c.from == "":
			if release, ok := free[c.of]; ok && release.from != c.to {
				o.takeovers = append(o.takeovers, takeover{c.of, release.from, c.to, c.at, without(release.at, c.at, away), true})
			}
		case c.from != c.to:
			struck := c.at
			excused := c.ranOut
			for _, t := range troubles {
				if t.who == owners[c.from] && t.who != nil && t.covers(c.at) {
					excused = true
					if t.from.Before(struck) {
						struck = t.from
					}
				}
			}
			o.takeovers = append(o.takeovers, takeover{c.of, c.from, c.to, c.at, without(struck, c.at, away), false})
			if !excused {
				o.findings = append(o.findings, finding{kindStolen, c.of, 0,
					fmt.Sprintf("by %s from %s at %s, whose heartbeat of %s had not run out", named(owners, c.to), named(owners, c.from), c.at.Format(clock), c.lastBeat.Format(clock))})
			}
		}
	}
	return o
}

const clock = "15:04:05.000"

func named(owners map[string]*life, id string) string {
	if l := owners[id]; l != nil {
		return l.String()
	}
	return id
}

// without is how long it is from one time to another beside the times in which nobody could do anything.
func without(from, to time.Time, away []nobody) time.Duration {
	for _, n := range slices.SortedFunc(slices.Values(away), func(a, b nobody) int { return a.from.Compare(b.from) }) {
		if !n.to.Before(from) && n.from.Before(to) {
			// What was under way before it has to begin anew.
			from = n.to
		}
	}
	return max(0, to.Sub(from))
}
