// Package nixltest is the behavior suite every transport of package nixl passes.
//
// Start with [Run]. It is imported by tests only, owns nothing beyond the test it
// is given, and does not test what only one transport has.
package nixltest
