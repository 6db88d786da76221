// Package deps holds the rules of who may import whom, as tests.
//
// Start with rules_test.go: every rule carries its reason, and a new edge that
// breaks one fails the test. So does a rule that names a package which does not exist.
//
// The package contains no code of its own. It has the go command list, for Linux and macOS,
// what every package of this module imports, test files left out: what a program links is
// all that can be reached from it.
package deps
