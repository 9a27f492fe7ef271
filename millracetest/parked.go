package millracetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
)

// Parked checks which events of a projection are parked, and returns their dead letters. Without positions, none may be
// parked. The name of a later version is like "totals@2".
func (k *Kit) Parked(name string, positions ...int64) []projection.DeadLetter {
	k.t.Helper()
	id := k.id(name)
	k.expected[id] = true
	letters := k.letters(id)
	var got []int64
	for _, letter := range letters {
		got = append(got, letter.Position)
	}
	if !slices.Equal(got, positions) {
		k.t.Errorf("projection %s has parked the positions %v, want %v%s", id, got, positions, describe(id, letters))
	}
	return letters
}

// readParked reads the parked events of the projections that ran.
func (b *bench) readParked(projections []millrace.Projection, status admin.Status) {
	b.t.Helper()
	maps.DeleteFunc(b.parked, func(id millrace.ProjectionID, _ []projection.DeadLetter) bool {
		return slices.ContainsFunc(projections,
			func(p millrace.Projection) bool { return projection.VersionName(p.Name, p.Version) == id.Name })
	})
	for _, p := range status.Projections {
		if p.Parked > 0 {
			id := millrace.ProjectionID{Tenant: p.ID.Tenant, Name: p.ID.Name} // with all partitions
			b.parked[id] = b.letters(id)
		}
	}
}

// letters returns the parked events of a projection, in order.
func (b *bench) letters(id millrace.ProjectionID) []projection.DeadLetter {
	b.t.Helper()
	ctx, cancel := b.context()
	defer cancel()
	letters, err := b.store.DeadLetters(id).List(ctx, projection.DeadLetterPage{Limit: 1000})
	b.must(err)
	slices.SortFunc(letters, func(a, b projection.DeadLetter) int { return int(a.Position - b.Position) })
	return letters
}

// checkParked fails the test if events were parked that it did not expect.
func (b *bench) checkParked() {
	b.t.Helper()
	if note := b.parkedNote(); note != "" {
		b.t.Errorf("events were parked that the test did not expect (Kit.Parked):%s", note)
	}
}

// parkedNote describes the parked events that the test did not expect.
func (b *bench) parkedNote() string {
	var text strings.Builder
	for _, id := range slices.SortedFunc(maps.Keys(b.parked),
		func(a, b millrace.ProjectionID) int { return strings.Compare(a.String(), b.String()) }) {
		if !b.expected[id] {
			text.WriteString(describe(id, b.parked[id]))
		}
	}
	return text.String()
}

// describe says which events a projection has parked, and why.
func describe(id millrace.ProjectionID, letters []projection.DeadLetter) string {
	const most = 10
	var text strings.Builder
	for i, letter := range letters {
		if i == most {
			fmt.Fprintf(&text, "\n%d more events of projection %s", len(letters)-most, id)
			break
		}
		fmt.Fprintf(&text, "\nprojection %s parked position %d (%s of stream %s): %s", id, letter.Position, letter.Type,
			letter.Stream, letter.Error)
	}
	return text.String()
}
