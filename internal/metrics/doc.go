// Package metrics defines the Prometheus metrics of the programs. Where Dynamo has a
// metric, names, labels and buckets are Dynamo's, so that its dashboards work.
//
// Start with [Registry], made by [NewRegistry] and served by [Registry.Handler], and with
// the bundles: [NewFrontend], [NewWorker] and [NewNIXL] return counters, gauges and
// histograms that are ready to use.
//
// A Registry and everything it hands out is safe for concurrent use. It starts no
// goroutine. A bundle with a limited life, such as a worker's, has a Close that removes
// its series; using the bundle afterwards is harmless and has no effect.
//
// The package measures nothing: callers pass in durations. The quantiles in dynctl's
// dashboard do not come from here but from the events that frontends publish.
package metrics
