// Command prometheus runs projections over an event store, in an SQLite file or in PostgreSQL, and serves their metrics
// to Prometheus.
//
//	go run ./prometheus                                    # a temporary file, metrics on http://127.0.0.1:9464/metrics
//	go run ./prometheus -file shop.db -listen :9464
//	go run ./prometheus -database-url postgres://localhost/shop
//
// It appends orders by itself. Some orders are invalid and are parked, and the server for mails is down from time to
// time. docs/grafana.json of the module above is a dashboard of the metrics, and docs/alerts.yml has rules for alerts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run runs the program until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("prometheus", flag.ContinueOnError)
	flags.SetOutput(out)
	file := flags.String("file", "", "SQLite file of the events; a temporary one if empty")
	url := flags.String("database-url", "", "PostgreSQL database of the events, in place of a file")
	listen := flags.String("listen", "127.0.0.1:9464", "address that serves /metrics")
	every := flags.Duration("every", 100*time.Millisecond, "time between two orders")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case *every <= 0:
		return fmt.Errorf("-every must be positive: %v", *every)
	case *file != "" && *url != "":
		return errors.New("-file and -database-url exclude each other")
	}
	if *file == "" && *url == "" {
		folder, err := os.MkdirTemp("", "millrace-prometheus")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		*file = filepath.Join(folder, "shop.db")
	}
	log, err := zap.NewDevelopment(zap.IncreaseLevel(zap.WarnLevel))
	if err != nil {
		return err
	}
	s, err := newShop(ctx, options{file: *file, databaseURL: *url, log: log})
	if err != nil {
		return err
	}
	defer s.close()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "metrics are on http://%s/metrics\n", listener.Addr())
	return serve(ctx, s, listener, *every)
}

// serve serves the metrics, runs the projections and appends orders until ctx ends.
func serve(ctx context.Context, s *shop, listener net.Listener, every time.Duration) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", s.metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.runtime.Run(ctx) })
	g.Go(func() error { return s.sell(ctx, every) })
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		closing, closed := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer closed()
		return server.Shutdown(closing)
	})
	return g.Wait()
}
