package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// InstanceID identifies one live registration. It equals the etcd lease id of
// the worker that owns it, so it changes when a lost lease is granted anew.
// JSON form: decimal integer. Key and display form: lower-case hex.
type InstanceID uint64

// String returns the id in lower-case hex without leading zeros, as in keys.
func (id InstanceID) String() string { return strconv.FormatUint(uint64(id), 16) }

// ParseInstanceID reads the hex form.
func ParseInstanceID(s string) (InstanceID, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("instance id %q is not hexadecimal", s)
	}
	return InstanceID(v), nil
}

// ParseInstanceRef reads an id as people and programs write it: hexadecimal with 0x or with a
// letter, else decimal.
func ParseInstanceRef(s string) (id InstanceID, ok bool) {
	digits, hex := strings.CutPrefix(strings.ToLower(s), "0x")
	base := 10
	if hex || strings.ContainsAny(digits, "abcdef") {
		base = 16
	}
	v, err := strconv.ParseUint(digits, base, 64)
	return InstanceID(v), err == nil
}

// Instance is one live endpoint of one worker (or frontend, or agent), as
// registered in etcd under its lease.
type Instance struct {
	Type       string     `json:"type"` // always "Endpoint"
	Namespace  string     `json:"namespace"`
	Component  string     `json:"component"`
	Endpoint   string     `json:"endpoint"`
	InstanceID InstanceID `json:"instance_id"`
	Transport  Transport  `json:"transport"`
	Codec      string     `json:"request_plane_codec,omitempty"` // "msgpack"

	// Worker is the human name (worker-7), Node the id of the hosting node and
	// Incarnation the run of the dynamod process that registered. They let a
	// restarted node revoke what its previous run left behind.
	Worker      string `json:"worker,omitempty"`
	Node        string `json:"node,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
}

// InstanceType is the value of [Instance.Type].
const InstanceType = "Endpoint"

// Key returns the etcd key of the registration.
func (i Instance) Key() string {
	return InstanceKey(i.Namespace, i.Component, i.Endpoint, i.InstanceID)
}

// Of returns the name of the endpoint that i is an instance of.
func (i Instance) Of() Endpoint {
	return Endpoint{Namespace: i.Namespace, Component: i.Component, Name: i.Endpoint}
}

// DefaultNamespace is the namespace of clusters whose configuration names none.
const DefaultNamespace = "dynamo"

// Components and endpoints that are not named after a role.
const (
	ComponentFrontend = "frontend" // HTTP frontends register endpoints "http", "decisions", "departed", "kv_index" and "flights"
	ComponentAgent    = "agent"    // node agents register "logs" and "attach", and "node_stats" if they have GPUs

	EndpointGenerate   = "generate"        // decode: serve one request; prefill: compute its KV and hold it
	EndpointHandover   = "handover"        // decode: take over a sequence of another decode worker
	EndpointMedia      = "media"           // frontend: content of a request in flight
	EndpointPrefill    = "prefill"         // prefill: announces a queue consumer; also direct prefill
	EndpointBootstrap  = "bootstrap"       // prefill: decode workers join the rooms of background prefills
	EndpointModelFiles = "model_files"     // tokenizer and config files of the served model
	EndpointStats      = "stats"           // WorkerStatus on request
	EndpointClearKV    = "clear_kv_blocks" // forget the prefix cache
	EndpointKVEvents   = "kv_events"       // KV events that a reader has missed, or all blocks
	EndpointPaths      = "paths"           // this worker's NIXL paths to other workers
	EndpointActivity   = "activity"        // Activity on request: sequences and transfers
	EndpointHTTP       = "http"
	EndpointLogs       = "logs"
	EndpointAttach     = "attach"     // holds a service behind a URL while the call lasts
	EndpointNodeStats  = "node_stats" // NodeStats on request
	EndpointDecisions  = "decisions"  // the newest router decisions, on request
	EndpointKVIndex    = "kv_index"   // KVIndex on request
	EndpointLoad       = "load"       // RecordedLoad on request
	EndpointFlights    = "flights"    // all requests in flight, for other frontends
	EndpointDeparted   = "departed"   // answers once the frontend no longer chooses an instance
)

// EndpointEncode names the endpoint of encode workers whose engine is a server that others wrote, for
// the model of a digest. Those of the built-in engine serve [EndpointGenerate].
func EndpointEncode(digest string) string {
	sum := sha256.Sum256([]byte(digest))
	return "encode_" + hex.EncodeToString(sum[:8])
}
