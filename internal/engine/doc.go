// Package engine turns requests into tokens: sequences, continuous batching with chunked
// prefill, a paged KV cache with prefix reuse, preemption and sampling. A [Backend] does
// the arithmetic.
//
// Start with [Engine] (the methods that workers call), [BlockPool] (the owners of KV
// blocks) and [Backend] (one batch step). draw.go applies a request's options to the
// logits, and sampler.go draws the token; a [Constraint] may restrict the draw. chunks.go
// and pace.go size the chunks of prompts. speculate.go verifies several tokens of a
// sequence in one step. DESIGN.md explains the decisions.
//
// One goroutine, the scheduler in Engine.Run, owns all sequences, the block pool and the
// sampler. Other goroutines send it functions through a bounded mailbox and read results
// from a [Stream]. All methods of Engine and Stream are safe for concurrent use.
// In simulations a [Stepper] takes the place of Engine.Run, without goroutines.
//
// The package does not import discovery, queues or transfers. For a remote prefill it
// hands out a [Reservation], whose blocks another worker fills. The worker that computes
// the prompt gets a [Held] prompt, whose blocks another worker reads.
package engine
