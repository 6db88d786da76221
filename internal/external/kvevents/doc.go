// Package kvevents follows the KV events of servers that others wrote and tells a [Sink] which
// of the router's blocks they hold.
//
// [New] makes a [Follower], and [Follower.Run] owns all its goroutines. vLLM and SGLang
// publish over ZeroMQ ([Config.Endpoint]), TensorRT-LLM has a queue that is drained over HTTP
// ([Config.Drain]). All methods may be called concurrently; the sink is called by one
// goroutine at a time.
//
// What a server says is bounded in bytes, time and work, and what is lost is never passed
// over: missed messages are asked for again, and where they cannot be had, the server's blocks
// are forgotten and learned anew. DESIGN.md has the reasons.
package kvevents
