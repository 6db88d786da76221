// Package engine turns requests into tokens: sequences, continuous batching with
// chunked prefill, a paged KV cache with prefix reuse, preemption and sampling.
// Arithmetic is left to a [Backend].
//
// Start with [Engine] (what workers call), [BlockPool] (who owns which KV block)
// and [Backend] (one batch step). How a token is chosen is in draw.go (what a
// request asks for) and sampler.go (the draw itself); a [Constraint] may restrict it.
// How large chunks of prompts are is in chunks.go and pace.go, how several tokens of a
// sequence come out of one step in speculate.go. Decisions are in DESIGN.md.
//
// One goroutine, the scheduler in Engine.Run, owns all sequences, the block pool
// and the sampler; everything else talks to it through a bounded mailbox and
// reads results from a [Stream]. All methods of Engine and Stream are safe for
// concurrent use.
//
// The package knows nothing of discovery, queues or transfers: remote prefill
// enters as a [Reservation] (blocks that somebody else will fill) and leaves as a
// [Held] prompt (blocks that somebody else will read).
package engine
