// Package handshaketest attacks the doors of a program: listeners that let nobody in who
// cannot prove to know the cluster's secret, and clients that talk to no others.
//
// Start with [Door], whose Run has all attacks. It is imported by tests only and owns
// nothing beyond the test it is given.
package handshaketest
