// Package config decides every setting of dynamod and dynctl: a command line
// flag wins over an environment variable, that over the configuration file, and
// that over the default.
//
// Start with [LoadDynamod] and [LoadDynctl]; they return a typed [Dynamod] or
// [Dynctl] and the [Origins] of all values. [DynamodTable] and [DynctlTable]
// list every key once: flags, help text and the example files in configs/ are
// generated from them.
//
// The package reads nothing by itself: flags, environment and files come in
// through [Input]. It starts no goroutine; results are plain values which their
// owner may change, and an Origins is safe to read from many goroutines.
//
// It does not watch files and holds no setting that changes while a cluster
// runs: those live in the cluster's store.
package config

//go:generate go test -run ^TestExampleFiles$ . -update
