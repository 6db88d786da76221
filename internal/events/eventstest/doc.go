// Package eventstest holds the behavior every event bus and every work queue
// must show.
//
// Start with [RunBus] and [RunQueue], which the tests of an implementation call.
// The suites own nothing; what they use is made and closed by the caller. They do
// not test what only one implementation has, such as a server that goes away.
package eventstest
