// Package credentials holds the secret that all programs of a cluster share, and what
// follows from it: keys for handshakes, each for one purpose.
//
// Start with [Secret]. The first dynamod of a cluster makes it ([LoadOrCreate]); who
// else belongs to the cluster is given it. It is kept in a file that only its owner
// may read, and is never logged: it formats as its fingerprint.
package credentials
