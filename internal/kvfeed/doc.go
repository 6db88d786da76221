// Package kvfeed keeps a prefix index true to the caches of the workers.
//
// A [Feed] follows the workers in discovery and applies their KV events to a
// [kvindex.Index]. Events can be lost anywhere between engine and reader. Each event has
// an id in the epoch of its engine's cache, so a gap shows with the next event, and the
// loss of the last event with the next position that the worker tells. The feed then asks
// the worker for what it has missed, or for all its blocks. A worker that cannot be asked
// for [untrueFor] loses its blocks in the index: nothing known is better than what is
// false. So the index is never wrong for longer than a second, whatever is lost.
package kvfeed
