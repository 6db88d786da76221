// Package credentials holds the secret that all programs of a cluster share, and
// everything derived from it: keys for handshakes, each for one purpose, certificates,
// and join tokens.
//
// Start with [Secret]. The first dynamod of a cluster makes it ([Create]); other
// machines receive it in a join [Token]. It is kept in a file that only its owner may
// read, and is never logged: it formats as its fingerprint.
package credentials
