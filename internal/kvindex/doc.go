// Package kvindex answers which workers hold how much of a prompt in their KV caches.
//
// An [Index] is fed with the KV events of all workers ([Index.Store], [Index.Remove],
// [Index.Clear], [Index.Drop]). [Index.Lookup] takes the sequence hashes of a prompt's
// blocks and returns for each worker how many leading blocks it holds, by tier. A sequence
// hash names a block together with all blocks before it (see package blockhash), so a flat
// table replaces a radix tree: a block is found without its parents, and blocks whose
// parents were evicted count again when the parents come back.
//
// Lookups take no lock and never wait for writers. Writers take turns: one is so much
// faster than events come that more of them would only slow each other down.
//
// A random access to a large table waits for memory, so calls request the buckets of later
// blocks before they use those of earlier ones (window.go). To keep many requests in flight,
// the code in between has few unpredictable branches and no locked instructions, and large
// tables lie in huge pages.
//
// A block costs 13 bytes of a table that is filled to 63 % on average, and 8 to 16 bytes in
// the list of each worker that holds it.
//
// The package knows no events, no network and no time.
package kvindex
