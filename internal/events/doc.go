// Package events is the event plane of a cluster, publish and subscribe over
// NATS, and its work queue over JetStream; both also in memory.
//
// Start with [Bus] and [NewNATS] for events, with [WorkQueue], [Delivery] and
// [NATS.WorkQueue] for work. [Memory] and [MemoryQueue] keep the same contracts
// inside one process.
//
// A bus owns its connection, its outbox and one goroutine per subscription; Close
// stops and awaits them. A queue made from a bus uses the bus's connection and
// owns nothing else: its goroutines live inside Consume. Everything may be used
// from many goroutines at once; a [Delivery] belongs to its handler.
//
// Events are sent at most once: nothing is stored or repeated, loss is counted
// and visible in sequence numbers, and asking the publisher for what was missed
// is up to the subscriber. Work is handed out at least once: a handler must cope
// with seeing a message twice. The package starts no server.
package events
