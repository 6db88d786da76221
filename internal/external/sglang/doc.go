// Package sglang uses servers of SGLang.
//
// [Engine] speaks the native /generate with token ids, and passes clients' bodies on. A prefill
// and a decode server exchange KV at once: both get the same request and meet in a room of
// the prefill server's bootstrap server. An Engine may be used concurrently and starts no
// goroutines.
package sglang
