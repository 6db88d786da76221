// Package fencedtest tests the transports of package nixl/fenced with a second
// process, which is killed and stopped at bad moments, inside of a fence, too.
//
// Start with [Suite]. It is imported by tests only and owns nothing beyond the test it
// is given. What holds for other transports as well is in package
// nixl/nixltest/processtest.
package fencedtest
