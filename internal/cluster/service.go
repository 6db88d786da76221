package cluster

// AttachPurpose is what the token for attached services is derived for.
const AttachPurpose = "attached services"

// Service says what joins through a node: a program behind a URL that answers an endpoint,
// or one that is the engine of a model.
type Service struct {
	// Endpoint is what it answers, as dyn://namespace.component.endpoint. It is empty for a
	// model.
	Endpoint string `json:"endpoint,omitempty"`
	URL      string `json:"url"` // takes requests
	// ReadyURL is asked whether the service is ready. If it is empty, it is enough that the
	// service accepts connections.
	ReadyURL string        `json:"ready_url,omitempty"`
	Model    *ServiceModel `json:"model,omitempty"`
	// TTLSeconds is how long the service stays without a word from it; default 30, at most an
	// hour. A call that holds the service has no such limit.
	TTLSeconds int `json:"ttl_seconds,omitempty"`
}

// ServiceModel describes the model whose engine a service is.
type ServiceModel struct {
	Name string `json:"name"`
	// Dir is a folder of the node with the tokenizer and the chat template; empty: bytes are
	// tokens.
	Dir           string `json:"dir,omitempty"`
	ContextLength int    `json:"context_length,omitempty"` // tokens; 0 means 4096
	Concurrent    int    `json:"concurrent,omitempty"`     // requests at a time; 0 means 64
}

// ServiceState is what a node knows of a service.
type ServiceState struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	Model    string `json:"model,omitempty"`
	URL      string `json:"url"`
	// Instance is its id in discovery, in hexadecimal; empty until it was ready once.
	Instance string `json:"instance,omitempty"`
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason,omitempty"` // why it is not ready
	InFlight int    `json:"in_flight"`        // requests that it answers now
	// TTLSeconds is within what it must be renewed; 0 for one that a call holds.
	TTLSeconds int `json:"ttl_seconds,omitempty"`
}
