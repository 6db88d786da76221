// Package directory publishes the metadata of NIXL agents in a key-value store, such as
// etcd, and makes peers known from there.
//
// Start with [New]. Keys are <namespace>/<agent>/<label>; the whole blob has the label
// "metadata". They belong to the owner's lease, so that an agent that dies leaves the
// store, and with it the peers that had fetched it.
//
// A directory owns one goroutine per followed peer until Close. It does not own the
// agent or the store. All methods are safe to call at the same time.
//
// It is for a few peers: each has a watch of its own. The workers of dynamod, which meet
// all of a namespace, follow that with one (package worker).
//
// It does not choose what to publish, does not publish again after a lost lease, and
// does not encrypt: who may read the store may connect to its agents.
package directory
