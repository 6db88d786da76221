// Package frontend is the OpenAI-compatible HTTP server of a cluster: it checks
// requests, renders and tokenizes prompts, chooses a worker, streams the answer
// and moves it to another worker when one is lost.
//
// Start with [Frontend]; chat.go and completions.go are the two endpoints,
// pipeline.go is the way of a request behind both.
//
// A Frontend owns its listener, its watches and every request in flight; Run
// returns when all of them have ended. All methods are safe for concurrent use.
//
// It computes nothing and holds no KV: engines are reached over the request plane.
package frontend
