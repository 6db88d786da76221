// Package embedded runs the real etcd and NATS servers inside this process, for
// clusters that have none of their own.
//
// Start with [StartEtcd] and [StartNATS]. Both return when the server answers,
// keep their data in a directory that the next start continues from, on another
// port if need be, also after the process was killed.
//
// Each returned server owns its goroutines, listeners and files until Close,
// which may be called from any goroutine and more than once. A directory is
// locked against a second server. A server that fails later closes its Done
// channel and leaves the rest of the process alone.
//
// With [Credentials] a server speaks TLS alone and lets in only clients with a certificate
// of the same authority. That is also all there is of access control: whoever is let in
// may do everything.
//
// The package forms no multi-member clusters: a cluster that outgrows one server gets
// servers of its own.
package embedded
