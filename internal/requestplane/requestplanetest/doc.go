// Package requestplanetest is a test suite for request planes.
//
// Start with [Run], which a test of an implementation calls with a [Make]. The suite owns
// what it makes and closes it. It does not test properties of one implementation only,
// such as dead connections.
package requestplanetest
