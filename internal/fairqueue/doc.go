// Package fairqueue shares a scarce resource between tenants.
//
// A [Queue] holds what waits, in order of arrival within a tenant. Between tenants it
// is start-time fair queueing by virtual time: each tenant has a counter of the work
// that was done for it ([Queue.Charge]), and the one with the smallest counter is
// next. Who comes back after a while starts at the counter of who was served last, so
// that nobody saves up a claim. A lone tenant gets everything.
//
// A [Gate] bounds how many units are in use at once and has the rest wait in a Queue.
// Both are pure: they start no goroutines and read no clock.
package fairqueue
