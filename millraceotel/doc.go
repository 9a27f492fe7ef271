// Package millraceotel reports metrics and traces of a runtime to OpenTelemetry. It uses only the API: the program
// chooses the SDK and the exporters. docs/monitoring.md has a table of all metrics.
//
//	telemetry, err := millraceotel.New(millraceotel.Options{})
//	store, err := pgstore.Open(ctx, dsn, pgstore.Options{AppendMiddleware: []event.AppendMiddleware{telemetry.Append}})
//	runtime, err := millrace.New(millrace.Config{
//		Store:      store,
//		Observer:   telemetry.Observer(),
//		Middleware: []millrace.Middleware{telemetry.Handle},
//	})
//	stop, err := telemetry.WatchNode(runtime)
//	defer stop()
//
// # Traces
//
// Append makes a span for each append, and puts its trace context into the headers of the events. Handle makes a span
// for each call of a handler. If the call has a single event, as for Each, On and DeliverEach, the span continues the
// trace of its append. So an append, the handlers of its events, and the appends of these handlers are one trace. A
// call with several events begins a trace of its own, or continues that of its context, and links to the spans of the
// appends.
//
// # Attributes
//
// The number of time series is bounded: metrics name projections, states and kinds of faults, but neither streams nor,
// unless Options.Tenants is set, tenants. A process with several runtimes gives each a Telemetry with
// Options.Attributes of its own.
package millraceotel
