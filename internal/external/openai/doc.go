// Package openai uses any server with the OpenAI API: llama.cpp, Ollama, a service elsewhere.
//
// [Engine] passes clients' bodies on. With token ids it speaks /v1/completions, which answers
// with text: not all servers take them. No KV is exchanged. An Engine may be used concurrently
// and starts no goroutines.
package openai
