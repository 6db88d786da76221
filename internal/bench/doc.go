// Package bench sends a load to an OpenAI-compatible server and measures the answers.
//
// [Run] sends conversations of a source at the times of a schedule, however slow the answers
// are (an open loop), or keeps a number of them going (a closed loop). Latencies count from
// the time at which a request was due, and what delayed it inside the client is part of the
// [Report]: a server that stalls cannot hide behind requests that were never sent. [Compare]
// sets two reports side by side.
//
// Memory is bounded: counts and means are those of all requests, quantiles those of a random
// choice of [SampleLimit] values, of fewer for phases. Run owns all goroutines that it starts, and has
// ended them when it returns; every request has a deadline.
package bench
