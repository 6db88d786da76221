// Package openai is a client of OpenAI-compatible HTTP frontends: which models they
// serve, whether they are well, and streamed chat answers with their timing.
//
// Start with [Client]. [Client.Chat] delivers an answer piece by piece and returns
// it whole; [Events] reads the server-sent events below it.
//
// A Client is safe for concurrent use; Close ends its idle connections. It starts no
// goroutines of its own. Whoever wants a deadline puts it into the context.
//
// The package tries nothing twice: an [Error] says when to come back, its caller
// decides. It knows no cluster and no terminal.
package openai
