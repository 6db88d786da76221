// Package fairqueue shares a scarce resource between tenants.
//
// A [Queue] holds waiting items. Within a tenant they have the order that the caller wants,
// by default that of arrival; no order of a tenant's items gives it more than others. Between tenants it
// does start-time fair queueing by virtual time. Each tenant has a counter of the work
// done for it ([Queue.Charge]), and the tenant with the smallest counter is next. A
// tenant that returns after a pause starts at the counter of the tenant served last, so
// that idle time earns no claim. A single tenant gets everything.
//
// A [Gate] limits the units in use at a time; further ones wait in a Queue. Both start no
// goroutines and read no clock.
package fairqueue
