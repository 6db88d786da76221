// Package events is the event plane of a cluster, publish and subscribe over NATS, and
// its work queue over JetStream. Both exist in memory, too.
//
// Start with [Bus] and [NewNATS] for events, with [WorkQueue], [Delivery] and
// [NATS.WorkQueue] for work. [Memory] and [MemoryQueue] keep the same contracts inside
// one process.
//
// A bus owns its connection, its outbox and one goroutine per subscription; Close stops
// and awaits them. A queue made from a bus uses the bus's connection and owns nothing
// else: its goroutines live inside Consume. Everything may be used from many goroutines
// at once; a [Delivery] belongs to its handler.
//
// Events are delivered at most once. Nothing is stored or repeated. Sequence numbers make
// losses visible and countable; a subscriber that needs a lost event must ask its
// publisher. Work is delivered at least once, so that a handler must cope with seeing a
// message twice. The package starts no server.
package events
