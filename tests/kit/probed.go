package kit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
)

// probedEnv makes the test program run as a Probed process.
const (
	probedKind  = "MILLRACE_TEST_PROBED_KIND"
	probedPlace = "MILLRACE_TEST_PROBED_PLACE"
)

// blockType is the type of the events whose batch waits for Continue.
const blockType = "block"

// Probed is a process that runs the projection "p" and serves its probes, as a server in Kubernetes does.
type Probed struct {
	*Bundle
	cmd    *exec.Cmd
	url    string
	lines  *bufio.Scanner
	handle interface{ Close() error }
}

// Probe starts a Probed process on the bundle's store. TestMain of the package must call ServeProbes.
func (b *Bundle) Probe() *Probed {
	b.T.Helper()
	p := &Probed{Bundle: b, cmd: exec.CommandContext(b.Ctx, os.Args[0])}
	p.cmd.Env = append(os.Environ(), probedKind+"="+b.Kind.Name, probedPlace+"="+b.Place)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	b.Must(err)
	out, err := p.cmd.StdoutPipe()
	b.Must(err)
	p.handle, p.lines = in, bufio.NewScanner(out)
	b.Must(p.cmd.Start())
	b.T.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	p.url = "http://" + p.Says("serving ")
	return p
}

// Says waits until the process says something that begins with a prefix, and returns the rest.
func (p *Probed) Says(prefix string) string {
	p.T.Helper()
	for p.lines.Scan() {
		if rest, ok := strings.CutPrefix(p.lines.Text(), prefix); ok {
			return rest
		}
	}
	p.T.Fatalf("the process ended and never said %q: %v", prefix, p.lines.Err())
	return ""
}

// Answer is the answer to a probe.
type Answer struct {
	Status                        int
	Live, Ready                   bool
	Reasons, Degraded, Deployment []string
}

// Get asks a probe of the process.
func (p *Probed) Get(check string) (a Answer) {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.Ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/"+check, nil)
	p.Must(err)
	response, err := http.DefaultClient.Do(request)
	p.Must(err)
	defer func() { _ = response.Body.Close() }()
	p.Must(json.NewDecoder(response.Body).Decode(&a))
	a.Status = response.StatusCode
	return a
}

// Becomes waits until /readyz answers with a status, and a reason or a degradation that contains a text. Meanwhile
// /livez must answer 200.
func (p *Probed) Becomes(status int, text string) (a Answer) {
	p.T.Helper()
	p.Eventually(fmt.Sprintf("/readyz answers %d with %q", status, text), func() bool {
		if live := p.Get("livez"); live.Status != http.StatusOK || !live.Live || len(live.Reasons) > 0 {
			p.T.Fatalf("/livez: %+v", live)
		}
		a = p.Get("readyz")
		if a.Ready != (a.Status == http.StatusOK) || a.Ready != (len(a.Reasons) == 0) {
			p.T.Fatalf("/readyz: %+v", a)
		}
		return a.Status == status &&
			strings.Contains(strings.Join(slices.Concat(a.Reasons, a.Degraded, a.Deployment), "\n"), text)
	})
	return a
}

// Terminate sends SIGTERM, Continue ends the batch that waits, and End returns the exit code.
func (p *Probed) Terminate() {
	p.T.Helper()
	p.Must(p.cmd.Process.Signal(syscall.SIGTERM))
}

func (p *Probed) Continue() {
	p.T.Helper()
	p.Must(p.handle.Close())
}

func (p *Probed) End() (code int) {
	p.T.Helper()
	http.DefaultClient.CloseIdleConnections()
	for p.lines.Scan() { // Wait closes the pipe
	}
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// Block appends an event whose batch waits for Continue.
func (p *Probed) Block() {
	p.T.Helper()
	p.MustAppend(p.Store, "blocks", event.Any, event.Event{Type: blockType})
}

// ServeProbes runs a Probed process if this one should be one, and does not return then.
func ServeProbes() {
	if kind := os.Getenv(probedKind); kind != "" {
		if err := serveProbes(KindOf(kind), os.Getenv(probedPlace)); err != nil {
			fmt.Fprintln(os.Stderr, "probed process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// serveProbes is the main function of a Probed process, as docs/deployment.md describes it.
func serveProbes(kind *Kind, place string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, err := kind.Open(ctx, place, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	config := On(Quick, store)
	config.GracePeriod = time.Minute
	rt, err := millrace.New(config)
	if err != nil {
		return err
	}
	err = rt.Register(millrace.Projection{Name: "p",
		Handler: store.Batch(func(ctx context.Context, tx Tx, events []event.Envelope) error {
			for _, e := range events {
				if e.Type == blockType {
					fmt.Println("blocked")
					_, _ = bufio.NewReader(os.Stdin).ReadByte()
				}
			}
			return tx.Record(ctx, "p", events...)
		})})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: millrace.HealthHandler(rt), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Println("serving", listener.Addr())
	err = rt.Run(ctx)
	// The probes are answered until the leases are released.
	return errors.Join(err, server.Close(), ignoring(<-served, http.ErrServerClosed))
}

// ignoring returns err unless it is the other one.
func ignoring(err, other error) error {
	if errors.Is(err, other) {
		return nil
	}
	return err
}
