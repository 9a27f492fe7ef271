package runbook_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
)

var _ = add(map[string]func(s *scenario){
	"no-node-runs-a-projection":       notRun,
	"no-node-registers-a-projection":  unregistered,
	"a-node-died":                     deadNode,
	"a-node-is-frozen":                frozenNode,
	"a-process-does-not-end":          endlessProcess,
	"a-process-does-not-become-ready": notReady,
})

func notRun(s *scenario) {
	s.database()
	node := s.process("shop-1", s.dsn, "")
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	s.must(node.Process.Kill())
	_ = node.Wait()
	s.append("", "OrderPlaced")
	s.follow()
	s.process("shop-2", s.dsn, "")
}

func unregistered(s *scenario) {
	s.database()
	stop := s.node(soon("shop-1"), totals(nil), millrace.Projection{Name: "mails", Handler: counting(nil)})
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	stop()
	sums := totals(nil)
	sums.Name = "sums"
	stop = s.node(soon("shop-1"), sums)
	s.follow()
	s.follow()
	stop()
	s.follow()
	s.node(soon("shop-1"), sums)
	s.follow()
	s.follow()
	if list, err := s.admin().Status(s.ctx, admin.StatusFilter{}); err != nil || len(list.Projections) != 1 {
		s.Errorf("there are %+v: %v", list.Projections, err)
	}
}

func deadNode(s *scenario) {
	s.database()
	first := s.process("shop-1", s.dsn, "")
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	s.process("shop-2", s.dsn, "")
	s.eventually("both are alive", func() bool {
		summary, err := s.admin().Summary(s.ctx)
		s.must(err)
		return len(summary.Nodes) == 2 && summary.Nodes[0].Leases == 1 && summary.Nodes[1].Leases == 1
	})
	s.must(first.Process.Kill())
	_ = first.Wait()
	s.append("", "OrderPlaced")
	s.follow()
}

func frozenNode(s *scenario) {
	s.database()
	node := s.process("shop-1", s.dsn, "")
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	s.process("shop-2", s.dsn, "")
	s.must(node.Process.Signal(syscall.SIGSTOP))
	s.call("4711", fmt.Sprint(node.Process.Pid))
	s.follow()
	s.follow()
	s.follow()
}

func endlessProcess(s *scenario) {
	s.database()
	node := s.process("shop-1", s.dsn, "")
	s.append("", "OrderPlaced")
	s.reaches("", 1)
	s.append("", "Slow")
	s.eventually("the batch is in progress", func() bool {
		var n int
		// Between two messages of a short transaction, a session has this state for a moment.
		err := s.store.Pool().QueryRow(s.ctx, `select count(*) from pg_stat_activity where datname = current_database()
			and state = 'idle in transaction' and state_change < clock_timestamp() - interval '0.5 s'`).Scan(&n)
		return err == nil && n > 0
	})
	s.must(node.Process.Signal(syscall.SIGTERM))
	s.process("shop-2", s.dsn, os.Args[0]) // its handler is repaired
	s.call("4711", fmt.Sprint(node.Process.Pid))
	s.follow()
	s.follow()
}

func notReady(s *scenario) {
	if _, err := exec.LookPath("curl"); err != nil {
		s.Skip("needs curl")
	}
	s.database()
	config := soon("shop-1")
	config.LeaseDuration = time.Second
	s.sql("alter table millrace.leases rename to hidden")
	s.append("", "OrderPlaced")
	runtime := s.runtime(config, totals(nil))
	s.running(runtime)
	probes := httptest.NewServer(millrace.HealthHandler(runtime))
	s.Cleanup(probes.Close)
	s.call("http://10.0.3.17:8086", probes.URL)
	s.follow()
	s.sql("alter table millrace.hidden rename to leases")
	s.follow()
}
