// Package deps holds the rules of who may import whom, as tests.
//
// Start with rules_test.go: every rule carries its reason, and a new edge that
// breaks one fails the test. A rule about a package that does not exist yet is
// skipped.
//
// The package contains no code of its own and runs the go command on this
// module. It says nothing about imports of test files.
package deps
