// Package natsconn turns addresses and credentials of NATS into options of its client
// library: what the event plane and the store have in common.
//
// Start with [Config].
package natsconn
