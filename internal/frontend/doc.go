// Package frontend is the OpenAI-compatible HTTP server of a cluster: it checks
// requests, renders and tokenizes prompts, chooses a worker, streams the answer
// and moves it to another worker when one is lost.
//
// Start with [Frontend]. A request passes serve.go (checks and answer), job.go
// (its choices and their text), generation.go (its way through the workers) and
// sse.go (the stream of events); chat.go and completions.go hold what differs
// between the two endpoints, sampling.go and logprobs.go what they share, tools.go
// and parts.go the tool calls and reasoning of chats. registry.go knows which models
// are served.
//
// A Frontend owns its listener, its watches and every request in flight; Run
// returns when all of them have ended. Only the goroutine of an HTTP handler
// writes its response; the goroutines that generate hand their text to it. All
// methods are safe for concurrent use.
//
// It computes nothing and holds no KV: engines are reached over the request plane.
package frontend
