// Package store is the cluster's shared state: a small key-value store with revisions,
// leases and watches, kept in etcd, in NATS, in a directory or in memory.
//
// Start with [Store] (the interface), [NewEtcd], [NewNATS], [NewFile] and [NewMemory] (the
// implementations), [Watcher] (one prefix, followed for as long as a context lives) and
// [WatchPrefix] (the same, decoded into a typed map). [KeepLease] on a Store keeps a lease
// alive through outages; [Elect] runs a function on one member.
//
// A Store and everything it returns may be used by several goroutines at once. A Watcher
// and a LeaseKeeper own their goroutines and wait for them in Close; a Store's Close ends
// all of its watchers and keepers and waits for them. Values handed out are shared: read
// them, never write into them.
//
// The package does not know what the keys mean (cluster makes them), does not register
// anything again after a lost lease (runtime does) and starts no servers (embedded does).
package store
