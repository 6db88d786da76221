// Package certs reads certificates, keys and authorities from files, follows the files as
// they change, and makes certificates for a small cluster.
//
// Start with [Followers], which a program makes once, or with [Follow]. A [Follower] gives
// every new connection what its files hold at that time; connections that are open keep
// what they began with. It owns no goroutine: it looks at the files when a connection
// begins, at most once in a second, and when [Follower.Look] is called. All methods may be
// used by several goroutines.
//
// [Folder] makes an authority and certificates. The secret of a cluster and what follows
// from it is the business of package credentials.
package certs
