// Package openai is a client of OpenAI-compatible HTTP frontends: their models, their
// health, and streamed chat answers with timing.
//
// Start with [Client]. [Client.Chat] delivers an answer piece by piece and returns it
// whole; [Events] reads the underlying server-sent events.
//
// A Client is safe for concurrent use; Close ends its idle connections. It starts no
// goroutines of its own. Deadlines come from the caller's context.
//
// The package does not retry: an [Error] says when a retry makes sense, and the caller
// decides. It does not depend on a cluster or a terminal.
package openai
