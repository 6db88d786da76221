// Package handshaketest attacks the listeners and clients of a program. A listener must
// accept only peers that prove to know the cluster's secret, and a client must talk only
// to such peers.
//
// Start with [Door], whose Run makes all attacks. The package is for tests only and owns
// nothing beyond the test it is given.
package handshaketest
