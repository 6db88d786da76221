package cluster

// ServerStatus is what a worker knows of its server, for a worker whose engine others wrote.
type ServerStatus struct {
	Backend string `json:"backend"` // one of [ExternalBackends]
	Version string `json:"version,omitempty"`
	// URL is where the worker reaches the server.
	URL string `json:"url"`
	// Started is set if the node has started the server.
	Started bool `json:"started,omitempty"`
	// Model is the name by which the server knows the model.
	Model string `json:"model"`
	// Adapters are its LoRA adapters that are offered, sorted. OddAdapters counts those that are
	// not: beyond [MaxAdapters], or with a name for which [ValidAdapter] is false.
	Adapters    []string `json:"lora_adapters,omitempty"`
	OddAdapters int      `json:"odd_lora_adapters,omitempty"`
	// Connector is how it exchanges KV, "none" if it does not. Pair is equal for servers that
	// can exchange KV. Host is where others are told to reach it; empty: where the server says.
	Connector string `json:"connector"`
	Pair      string `json:"pair,omitempty"`
	Host      string `json:"host,omitempty"`
	// SideChannel is the host where decode servers get KV from this prefill server, or meet it:
	// as its latest first leg told; empty if the engine tells none, or has told none yet.
	SideChannel string `json:"side_channel,omitempty"`
	// NeedsPrefill is set for a decode server that computes no prompts.
	NeedsPrefill bool `json:"needs_prefill,omitempty"`
	// BlockSize is the number of tokens of its KV blocks, MaxModelLen the limit of prompt and
	// answer; 0 if it does not tell.
	BlockSize   int `json:"block_size,omitempty"`
	MaxModelLen int `json:"max_model_len,omitempty"`
	// NoLoad says why the server does not tell its load; empty if it does.
	NoLoad string `json:"no_load,omitempty"`
	// Events is about its KV events; nil if nobody follows them.
	Events *ServerEvents `json:"events,omitempty"`
	// FirstLegs counts the prompts that it was to compute for decode servers. FailedLegs counts
	// those that failed, the latest because of LegFailure, and StrandedLegs those whose KV no
	// decode server took in time.
	FirstLegs    uint64 `json:"first_legs,omitempty"`
	FailedLegs   uint64 `json:"failed_legs,omitempty"`
	LegFailure   string `json:"leg_failure,omitempty"`
	StrandedLegs uint64 `json:"stranded_legs,omitempty"`
}

// ServerEvents says how the KV events of a server are followed.
type ServerEvents struct {
	Endpoint string `json:"endpoint"`
	// Publishers counts the ranks of the server that are connected.
	Publishers int    `json:"publishers"`
	Batches    uint64 `json:"batches"`
	Events     uint64 `json:"events"`
	// Gaps counts losses of messages, Replays those that were made good, Restarts servers that
	// began anew, and Forgotten how often the blocks of a rank were given up.
	Gaps      uint64 `json:"gaps"`
	Replays   uint64 `json:"replays"`
	Restarts  uint64 `json:"restarts"`
	Forgotten uint64 `json:"forgotten"`
	// Unknown counts events of unknown types, Undecodable messages that make no sense, and
	// Ignored blocks that no plain prompt finds.
	Unknown     uint64 `json:"unknown"`
	Undecodable uint64 `json:"undecodable"`
	Ignored     uint64 `json:"ignored"`
	Blocks      int    `json:"blocks"` // of the router, held now
}
