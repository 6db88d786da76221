// Package external uses servers of engines that others wrote, over their HTTP APIs: vLLM,
// SGLang, TensorRT-LLM, and any server with the OpenAI API.
//
// An [Engine] is one server as the control plane needs it: what it is, whether it is well, how
// busy, and how it computes prompts and answers, alone or as one half of a pair that exchanges
// KV blocks. Each engine is a package below this one; package external/engines makes the
// one of a backend. What all of them do is checked by the suite of package
// external/externaltest.
//
// Objects that servers hand to each other are opaque here: they are kept byte for byte.
package external
