// Package examples has programs that use millrace with modules that millrace itself does not need. It is a module of
// its own.
//
//	orders       takes orders, has them paid and cancels those that are not, on either store: the program of docs/tutorial.md
//	prometheus   serves metrics to Prometheus by the SDK of OpenTelemetry
//	server       takes orders over HTTP, and keeps a read model of them: the program of docs/guide.md
package examples
