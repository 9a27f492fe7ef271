package tests_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// stopping are the times that a server takes to stop. In Drain it answers requests though it is no longer ready, until
// no load balancer sends it new ones. After that, requests in progress have the time of Requests.
type stopping struct{ Drain, Requests time.Duration }

// serve runs a runtime, and serves requests and probes, until ctx ends. Then it stops both in the order in which
// nothing is cut off.
func serve(ctx context.Context, rt *millrace.Runtime, requests http.Handler, at net.Listener, s stopping) error {
	ctx, end := context.WithCancel(ctx)
	// A request may wait for the runtime, so neither ends with ctx.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	mux := http.NewServeMux()
	mux.Handle("/", requests)
	mux.Handle("/livez", millrace.HealthHandler(rt))
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, "the process is stopping", http.StatusServiceUnavailable)
			return
		}
		millrace.HealthHandler(rt).ServeHTTP(w, r)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var served, ran error
	var both sync.WaitGroup
	both.Go(func() { served = server.Serve(at); end() })
	both.Go(func() { ran = rt.Run(running); end() })

	<-ctx.Done()          // 1. the signal, or one of both ended by itself: /readyz answers 503
	<-time.After(s.Drain) // 2. the load balancer notices that, and what it still sends is answered
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Requests)
	defer cancel()
	err := server.Shutdown(ending) // 3. no new requests; those in progress end
	if err != nil {
		err = errors.Join(fmt.Errorf("cut off the requests in progress: %w", err), server.Close()) // they took too long
	}
	stop() // 4. batches end within Config.GracePeriod, and the leases are released
	both.Wait()
	if errors.Is(served, http.ErrServerClosed) {
		served = nil
	}
	return errors.Join(ran, served, err)
}

// shop is a server of docs/stopping.md, with a projection and requests that wait for it.
type shop struct {
	*kit.Bundle
	rt *millrace.Runtime
	// began is sent to when an order arrives, and goOn lets it continue. late orders lose their answer.
	began, goOn chan struct{}
	late        bool
	address     string
	// signal begins the end, and stop waits for it.
	signal func()
	stop   func() error
}

// opens begins to serve.
func opens(b *kit.Bundle, late bool, times stopping) *shop {
	b.T.Helper()
	s := &shop{Bundle: b, began: make(chan struct{}, 1), goOn: make(chan struct{}), late: late}
	s.rt = b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Record("p"))})
	at, err := net.Listen("tcp", "127.0.0.1:0")
	b.Must(err)
	s.address = at.Addr().String()
	ctx, cancel := context.WithCancel(b.Ctx)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, s.rt, http.HandlerFunc(s.order), at, times) }()
	s.signal, s.stop = cancel, sync.OnceValue(func() error { cancel(); return <-ended })
	b.T.Cleanup(func() { _ = s.stop() })
	b.Eventually("the server is ready", func() bool { return s.get("/readyz") == http.StatusOK })
	return s
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	once := event.Any.WithKey(r.Header.Get("Idempotency-Key"))
	if err := once.Validate(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.began <- struct{}{}
	<-s.goOn
	appended, err := s.Store.Append(r.Context(), "order-1", once, event.New(kit.Counted{I: 1}))
	if err == nil {
		err = s.rt.WaitFor(r.Context(), millrace.ProjectionID{Name: "p"}, appended.Last())
	}
	if s.late {
		<-r.Context().Done()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprint(w, appended.Last())
}

func (s *shop) get(path string) (code int) {
	response, err := http.Get("http://" + s.address + path) //nolint:noctx // its server is local
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// post sends an order, and returns the status of its answer, 0 if there is none.
func (s *shop) post(key string) <-chan int {
	answer := make(chan int, 1)
	go func() {
		request, err := http.NewRequestWithContext(s.Ctx, http.MethodPost, "http://"+s.address+"/", http.NoBody)
		if err != nil {
			answer <- -1
			return
		}
		request.Header.Set("Idempotency-Key", key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			answer <- 0
			return
		}
		_ = response.Body.Close()
		answer <- response.StatusCode
	}()
	return answer
}

// refuses waits until the server takes no new connection.
func (s *shop) refuses() {
	s.T.Helper()
	s.Eventually("the server takes no requests", func() bool {
		conn, err := net.DialTimeout("tcp", s.address, time.Minute)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// A stop answers the requests in progress, though they wait for their read model, and before that, probes say that the
// process is stopping.
func TestStopOfAServerCutsNothingOff(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		probed := 0 // it may come too late, on a slow machine
		for drain := 500 * time.Millisecond; probed == 0; drain *= 2 {
			s := opens(b, false, stopping{Drain: drain, Requests: 2 * time.Minute})
			answer := s.post(drain.String())
			<-s.began
			s.signal()
			probed = s.get("/readyz")
			s.refuses()
			if h := s.rt.Health(b.Ctx); !h.Ready {
				t.Errorf("the runtime ends before a request in progress: %q", h.NotReady)
			}
			close(s.goOn)
			if code := <-answer; code != http.StatusOK {
				t.Errorf("the order in progress was answered by %d", code)
			}
			b.Must(s.stop())
			if owner := b.Status(s.rt, "p").Owner; owner != "" {
				t.Errorf("node %s keeps the lease", owner)
			}
		}
		if probed != http.StatusServiceUnavailable {
			t.Errorf("/readyz answers %d after the signal", probed)
		}
		b.Verify("p")
	})
}

// A request that takes too long is cut off, and its client gets no answer. It sends the order with the same key again,
// and the order is taken once.
func TestRequestThatAStopCutOffIsSentAgain(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		s := opens(b, true, stopping{Requests: 50 * time.Millisecond})
		answer := s.post("a")
		<-s.began
		close(s.goOn)
		b.Eventually("the order is appended", func() bool { return b.Head() == 1 })
		if err := s.stop(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of the server: %v", err)
		}
		if code := <-answer; code != 0 {
			t.Errorf("the order was answered by %d", code)
		}
		s = opens(b, false, stopping{Requests: 2 * time.Minute})
		close(s.goOn)
		if code := <-s.post("a"); code != http.StatusOK || b.Head() != 1 {
			t.Errorf("the repeat was answered by %d, and the last position is %d", code, b.Head())
		}
		if code := <-s.post(""); code != http.StatusBadRequest {
			t.Errorf("an order without a key was answered by %d", code)
		}
		b.Must(s.stop())
		b.Verify("p")
	})
}

// A server whose runtime ends by itself ends too.
func TestServerEndsWithItsRuntime(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		at, err := net.Listen("tcp", "127.0.0.1:0")
		b.Must(err)
		const why = "no projection is registered"
		if err := serve(b.Ctx, b.Runtime(millrace.Config{}), http.NotFoundHandler(), at,
			stopping{Requests: time.Minute}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	})
}
