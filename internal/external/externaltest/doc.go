// Package externaltest has doubles of the servers that package external uses, and the suite
// that every adapter passes.
//
// A [Double] speaks HTTP as vLLM, SGLang, TensorRT-LLM or a plain OpenAI server does, and is
// strict where they are. Its model is a function of all tokens before, so that an answer is
// the same from one server, from a pair, and from servers of another engine, and KV that went
// astray is seen. Doubles that exchange KV share a [Fabric]. Start with [New] and [Suite].
package externaltest
