package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	prometheusclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/millraceotel"
	"github.com/millrace-go/millrace/projection"
)

// OrderPlaced and OrderConfirmed are the events of the shop.
type (
	OrderPlaced struct {
		Customer string `json:"customer"`
		Cents    int64  `json:"cents"`
	}
	OrderConfirmed struct{}
)

// EventType implements event.Typed.
func (OrderPlaced) EventType() string { return "OrderPlaced" }

// EventType implements event.Typed.
func (OrderConfirmed) EventType() string { return "OrderConfirmed" }

// options are what the program is started with.
type options struct {
	file, databaseURL string
	log               *zap.Logger
	// tracers receives the spans. Default: they are dropped.
	tracers trace.TracerProvider
	// name is the attribute millrace.store of the metrics and spans, if there are several shops. Default: they have
	// none.
	name string
	// meters receives the metrics, and its owner serves them and shuts it down. Default: the shop serves its own.
	meters *sdkmetric.MeterProvider
}

// shop is the event store with its projections and their metrics.
type shop struct {
	store     store
	telemetry *millraceotel.Telemetry
	runtime   *millrace.Runtime
	// metrics and meters are nil if others serve the metrics.
	metrics http.Handler
	meters  *sdkmetric.MeterProvider
}

// newMeters returns a provider of metrics, and what serves them to Prometheus.
func newMeters() (*sdkmetric.MeterProvider, http.Handler, error) {
	registry := prometheusclient.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutScopeInfo())
	if err != nil {
		return nil, nil, err
	}
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)),
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// newShop opens the store, creates its tables and registers the projections.
func newShop(ctx context.Context, o options) (_ *shop, err error) {
	s := &shop{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if o.meters == nil {
		o.meters, s.metrics, err = newMeters()
		if err != nil {
			return nil, err
		}
		s.meters = o.meters
	}
	var attributes []attribute.KeyValue
	if o.name != "" {
		attributes = append(attributes, attribute.String("millrace.store", o.name))
	}
	s.telemetry, err = millraceotel.New(millraceotel.Options{
		MeterProvider: o.meters, TracerProvider: o.tracers, Attributes: attributes,
	})
	if err != nil {
		return nil, err
	}
	around := []event.AppendMiddleware{s.telemetry.Append}
	if o.databaseURL != "" {
		s.store, err = openPostgres(ctx, o.databaseURL, around)
	} else {
		s.store, err = openFile(ctx, o.file, around)
	}
	if err != nil {
		return nil, err
	}
	s.runtime, err = millrace.New(millrace.Config{Store: s.store, Logger: o.log, Observer: s.telemetry.Observer(),
		Middleware: []millrace.Middleware{s.telemetry.Handle}})
	if err != nil {
		return nil, err
	}
	if err := s.runtime.Register(s.projections()...); err != nil {
		return nil, err
	}
	// The end of the meter provider ends both.
	if _, err := s.telemetry.WatchNode(s.runtime); err != nil {
		return nil, err
	}
	_, err = s.telemetry.WatchDeployment(s.runtime.Admin)
	return s, err
}

func (s *shop) close() {
	if s.meters != nil {
		_ = s.meters.Shutdown(context.Background())
	}
	if s.store != nil {
		s.store.Close()
	}
}

// errMailServer is the error of mail while the mail server is down.
var errMailServer = errors.New("the mail server is down")

// projections returns three projections: confirmations handles single events and appends others, orders handles
// batches, and mails delivers.
func (s *shop) projections() []millrace.Projection {
	quick := projection.RetryPolicy{MaxAttempts: 2, Base: 50 * time.Millisecond}
	return []millrace.Projection{
		{Name: "confirmations", Handler: s.store.confirmations(), Retry: quick, MaxFailureShare: projection.NoLimit},
		{Name: "orders", Handler: s.store.orders()},
		{Name: "mails", Types: []string{"OrderConfirmed"}, Handler: millrace.DeliverEach(s.mail), Retry: quick,
			Breaker: projection.BreakerPolicy{
				IsOutage: func(err error) bool { return errors.Is(err, errMailServer) }, Failures: 3,
				OpenFor: time.Second,
			}},
	}
}

// mail sends a mail. The server is down for one second of each minute.
func (s *shop) mail(context.Context, millrace.Delivered) error {
	if time.Now().Second() == 0 {
		return errMailServer
	}
	return nil
}

// valid returns an error for an order that no handler can handle.
func valid(order OrderPlaced) error {
	if order.Cents < 0 {
		return projection.Park(fmt.Errorf("the amount must not be negative: %d", order.Cents))
	}
	return nil
}

// sell appends orders until ctx ends.
func (s *shop) sell(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		order := OrderPlaced{Customer: fmt.Sprint("customer ", rand.IntN(10)), Cents: rand.Int64N(10_000)}
		if n%200 == 199 {
			order.Cents = -1
		}
		if _, err := s.place(ctx, order); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// place appends an order to a stream of its own.
func (s *shop) place(ctx context.Context, order OrderPlaced) (event.Appended, error) {
	return s.store.Append(ctx, fmt.Sprintf("order-%d", rand.Int64()), event.NoStream, event.New(order))
}
