// Package profiler measures a worker behind an OpenAI-compatible server: how long prompts take
// by their length, and how long the tokens of answers take by context and by the number of
// sequences at a time, as NVIDIA Dynamo's profiler does.
//
// [Plan] lists the points to measure, the coarse grid first, so that a sweep that ends early is
// a grid still. [Run] measures those that are missing, within a budget of time, and hands each
// to its caller at once; [Journal] keeps them in a file, from which a later run goes on.
// [Build] makes a profile of the points: tables, and the costs of steps that fit them.
//
// Tokens are counted by the server. Times are those of the client, so that all between it and
// the worker is in them. Run owns all goroutines that it starts and has ended them when it
// returns. The package knows no cluster: what the server does for others, a caller tells by
// [Config].Others.
package profiler
