// Package testmain is the TestMain of packages whose tests use a database. It is for test files only, since it brings a
// test-only module along.
package testmain

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace-go/millrace/internal/pgtest"
)

const stopLimit = 30 * time.Second

// Run runs the tests of m, stops all servers of package pgtest, fails the run when a goroutine is left, and exits. The
// servers are stopped on SIGINT and SIGTERM too.
//
//	func TestMain(m *testing.M) { testmain.Run(m) }
func Run(m interface{ Run() int }, options ...goleak.Option) {
	os.Exit(run(m, options))
}

func run(m interface{ Run() int }, options []goleak.Option) int {
	overlap()
	unwatch := stopOnSignal()
	code := m.Run()
	unwatch()
	if err := stopServers(); err != nil {
		fmt.Fprintf(os.Stderr, "testmain: %v\n", err)
		code = max(code, 1)
	}
	// After a failed test, leaked goroutines are not reported: the message of the test is more important.
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintf(os.Stderr, "testmain: goroutines are left: %v\n", err)
			code = 1
		}
	}
	return code
}

// overlap sets how many tests run at once, unless a flag says it. They wait for servers and times far more than they
// compute.
func overlap() {
	const least = 4
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		_ = flag.Set("test.parallel", strconv.Itoa(max(least, runtime.GOMAXPROCS(0))))
	}
}

func stopOnSignal() (unwatch func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
		case got := <-signals:
			if err := stopServers(); err != nil {
				fmt.Fprintf(os.Stderr, "testmain: %v\n", err)
			}
			fmt.Fprintf(os.Stderr, "testmain: ended by %v\n", got)
			os.Exit(1)
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

func stopServers() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return pgtest.StopAll(ctx)
}
