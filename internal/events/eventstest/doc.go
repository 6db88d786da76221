// Package eventstest is a test suite for event buses and work queues.
//
// Start with [RunBus] and [RunQueue], which the tests of an implementation call. The
// suites own nothing; the caller makes and closes what they use. They do not test
// properties of one implementation only, such as a server that goes away.
package eventstest
