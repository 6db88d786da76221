// Package metrics names and holds what the programs report to Prometheus. Names,
// labels and buckets are Dynamo's wherever Dynamo has the metric, so that its
// dashboards work.
//
// Start with [Registry], made by [NewRegistry] and served by [Registry.Handler],
// and with the bundles: [NewFrontend], [NewWorker] and [NewNIXL] hand out counters,
// gauges and histograms that are ready to use.
//
// A Registry and everything it hands out is safe for concurrent use. It starts
// no goroutine. A bundle that stands for something with an end, such as a worker,
// has a Close that removes its series; using the bundle afterwards is harmless
// and counts nowhere.
//
// The package computes nothing: who measures a duration passes it in. Quantiles
// for the dashboard of dynctl do not come from here but from the events that
// frontends publish.
package metrics
