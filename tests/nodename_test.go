package tests_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/tests/kit"
)

// Two nodes may have the same name, and a name may have any characters that are no control characters.
func TestNodeNameIsInStatusSummaryAndLogs(t *testing.T) {
	const name = `büro "7"\ 🧵 'x'`
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		log, logged := kit.Logs()
		rt := b.Another(millrace.Config{NodeName: name, Logger: log}, b.Recorders("p")...)
		stop := b.Start(rt)
		b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
		second := b.Another(millrace.Config{NodeName: name}, b.Recorders("p")...)
		b.Start(second)
		a, err := admin.New(b.Store)
		b.Must(err)
		status, err := a.Status(b.Ctx, admin.StatusFilter{})
		b.Must(err)
		p := status.Projection(millrace.ProjectionID{Name: "p"})
		if p.OwnerName != name || p.Owner == "" || p.Owner == name {
			t.Errorf("owner %q, named %q", p.Owner, p.OwnerName)
		}
		summary, err := a.Summary(b.Ctx)
		b.Must(err)
		for _, n := range summary.Nodes {
			if n.Name != name || n.ID == name {
				t.Errorf("%+v", n)
			}
		}
		stop()
		for _, message := range []string{"runtime started", "runtime ended"} {
			if logged.FilterMessage(message).FilterField(zap.String("name", name)).Len() != 1 {
				t.Errorf("%q without the name", message)
			}
		}
	})
}

func TestNodeNameIsTheProcessByDefault(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{}, b.Recorders("p")...)
		host, err := os.Hostname()
		b.Must(err)
		b.Eventually("it is registered", func() bool { return len(b.Summary(rt).Nodes) == 1 })
		if name := b.Summary(rt).Nodes[0].Name; name != host+":"+strconv.Itoa(os.Getpid()) {
			t.Errorf("named %q", name)
		}
	})
}

func TestLongestNodeNameIsKept(t *testing.T) {
	name := strings.Repeat("ü", 100)
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(millrace.Config{NodeName: name}, b.Recorders("p")...)
		b.Eventually("its name is known", func() bool {
			nodes := b.Summary(rt).Nodes
			return len(nodes) == 1 && nodes[0].Name == name
		})
	})
}
