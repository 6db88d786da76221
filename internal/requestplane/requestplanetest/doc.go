// Package requestplanetest holds the behavior every request plane must show.
//
// Start with [Run], which a test of an implementation calls with a [Make].
// The suite owns what it makes and closes it; it does not test what only one
// implementation has, such as dead connections.
package requestplanetest
