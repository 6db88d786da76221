// Package processtest tests transports with a second process, which is killed and stopped
// at bad moments.
//
// Start with [Suite], whose Run has the tests that hold for every transport; its other
// methods are for those of one. The second process is the test binary again: a package
// that uses this one has a test of the name TestChild, which calls [Child].
//
// It is imported by tests only and owns nothing beyond the test it is given. What needs
// one process only is in package nixltest.
package processtest
