// Package frontend is the OpenAI-compatible HTTP server of a cluster. It checks requests,
// renders and tokenizes prompts, chooses a worker and streams the answer. If the worker
// is lost, it moves the request to another one.
//
// Start with [Frontend]. A request passes serve.go (checks and answer), job.go (its
// choices and their text), generation.go (its way through the workers) and sse.go (the
// stream of events). chat.go and completions.go hold the differences between the two
// endpoints, sampling.go and logprobs.go their common parts, tools.go and parts.go the
// tool calls and reasoning of chats. registry.go tracks the models that are served.
//
// A Frontend owns its listener, its watches and every request in flight. Run returns when
// all of them have ended. Only the goroutine of an HTTP handler writes its response; the
// generating goroutines hand their text to it. All methods are safe for concurrent use.
//
// The frontend does not run models and holds no KV. It reaches engines over the request
// plane.
package frontend
