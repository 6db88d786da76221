// Package fencedtest tests the transports of package nixl/fenced with a second
// process, which is killed and stopped at bad moments.
//
// Start with [Suite]. It is imported by tests only and owns nothing beyond the test it
// is given. What needs one process only is in package nixltest.
package fencedtest
