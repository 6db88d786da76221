// Package embedded runs the real etcd and NATS servers inside this process, for clusters
// that have none of their own.
//
// Start with [StartEtcd] and [StartNATS]. Both return when the server answers. The next
// start continues from the data directory, even after the process was killed, and on
// another port if necessary.
//
// Each returned server owns its goroutines, listeners and files until Close, which may be
// called from any goroutine and more than once. A directory is locked against a second
// server. A server that fails later closes its Done channel and leaves the rest of the
// process alone.
//
// With [Credentials], a server speaks only TLS and accepts only clients with a
// certificate of the same authority. There is no further access control: an accepted
// client may do everything.
//
// The package runs single servers only, no clusters of etcd or NATS servers. A cluster
// that outgrows one server needs servers outside of dynamod.
package embedded
