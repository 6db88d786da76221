// Package dynamo lets a Go program join a cluster: serve endpoints, call those of others,
// exchange events, and serve a language model with an engine of its own.
//
// Start with [Connect], which finds the cluster by the settings of dynamod: on a machine
// where one runs, without any. [NewLocal] makes a cluster within the process, for tests and
// for trying things out. A [Runtime] holds one lease; everything it serves is registered
// under it, and is gone soon after the program.
//
//   - [Runtime.Endpoint] names an endpoint, dyn://namespace.component.endpoint.
//     [Endpoint.Serve] answers its requests with a [Handler], which [Unary] and [Stream] make
//     of plain functions.
//   - [Endpoint.Client] follows its instances and calls them; see [Ask] and [Call].
//   - [Runtime.Publish] and [Runtime.Subscribe] are the event plane.
//   - [Runtime.ServeModel] serves a model that every frontend of the namespace then offers
//     under /v1/chat/completions and /v1/completions.
//
// Requests and answers are msgpack, with the names of json tags. Fields that are zero are
// left out. Everything here may be used by several goroutines at once, except a stream.
//
// The package follows semantic versioning with the module. Before 1.0, a minor version may
// change it; the changelog says how.
package dynamo
