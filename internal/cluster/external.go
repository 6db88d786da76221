package cluster

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// The engines that others wrote. A worker with one of these backends stands for a server of
// that engine, which dynamod starts ([External.Command]) or finds running ([External.URL]).
const (
	BackendVLLM        = "vllm"
	BackendSGLang      = "sglang"
	BackendTensorRTLLM = "trtllm"
	BackendOpenAI      = "openai" // any server with the OpenAI API; it exchanges no KV
)

// ExternalBackends lists the backends that are servers of their own.
func ExternalBackends() []string {
	return []string{BackendVLLM, BackendSGLang, BackendTensorRTLLM, BackendOpenAI}
}

// External reports whether the engine is a server of its own.
func (e EngineSpec) External() bool { return slices.Contains(ExternalBackends(), e.Backend) }

// External says how a node starts, finds and uses a server of an engine that others wrote.
// Zero fields mean the default of the engine. All fields are comparable by ==.
type External struct {
	// URL is where a server listens that runs already. Empty if Command starts one.
	URL string `json:"url,omitempty"`
	// Command is the command line that starts the server, in words as a POSIX shell splits
	// them; no shell runs it. What the server needs for its role, port, KV events and KV
	// exchange is appended, unless the command line has it.
	Command string `json:"command,omitempty"`
	// Env has lines of the form NAME=value, sorted by name, which are added to the environment
	// of Command. A value that is secret belongs into a file of the node.
	Env string `json:"env,omitempty"`
	// Port is where a server listens that Command starts; 0: dynamod takes a free one.
	Port int `json:"port,omitempty"`
	// Model is the name by which the server knows the model; empty means the served name.
	Model string `json:"served_model,omitempty"`
	// Connector is how servers of the engine exchange KV blocks, one of
	// [ExternalConnectors] of the backend; empty means the first of them.
	Connector string `json:"connector,omitempty"`
	// Host is where other servers reach this one to exchange KV, if it says another or
	// none; for vllm it replaces the remote_host that a prefill server tells.
	Host string `json:"host,omitempty"`
	// BootstrapPort is the port where servers meet: that of SGLang's bootstrap server and
	// of vLLM's Mooncake connector.
	BootstrapPort int `json:"bootstrap_port,omitempty"`
	// Events is where the server publishes KV events, as tcp://host:port, or "off";
	// Replay is where missed ones are asked for. A host of * means that the server connects
	// and dynamod listens.
	Events string `json:"kv_events,omitempty"`
	Replay string `json:"kv_replay,omitempty"`
	// KeyFile is a file of the node with the API key of the server; CAFile one with the
	// certificates that its TLS certificate is checked against, beside the system's.
	KeyFile string `json:"api_key_file,omitempty"`
	CAFile  string `json:"ca_file,omitempty"`
	// Sleep has a server that Command starts take the orders of dynctl sleep and dynctl wake.
	Sleep bool `json:"sleep,omitempty"`
	// Pair restricts the exchange of KV: only servers with the same text exchange. It is
	// added to what dynamod finds out itself, such as version, model and block size.
	Pair string `json:"pair,omitempty"`
}

// Sleeps reports whether servers of the engine can sleep, and so can their workers.
func (e EngineSpec) Sleeps() bool { return e.Backend == BackendVLLM || e.Backend == BackendSGLang }

// EncodingBackends lists the engines whose servers compute the embeddings of media for each other,
// so that they can be encode workers.
func EncodingBackends() []string { return []string{BackendVLLM} }

// Encodes reports whether servers of the engine are among [EncodingBackends].
func (e EngineSpec) Encodes() bool { return slices.Contains(EncodingBackends(), e.Backend) }

// ExternalConnectors lists the ways in which servers of an engine exchange KV, the default
// first; nil for an engine that exchanges none.
func ExternalConnectors(backend string) []string {
	switch backend {
	case BackendVLLM:
		return []string{"nixl", "mooncake", "none"}
	case BackendSGLang:
		return []string{"bootstrap", "none"}
	case BackendTensorRTLLM:
		return []string{"context-first", "generation-first", "none"}
	}
	return nil
}

// EventsOff is the value of [External.Events] for a server whose KV events are not followed.
const EventsOff = "off"

// Attached reports whether the server runs already, so that dynamod neither starts nor stops
// it.
func (x External) Attached() bool { return x.URL != "" }

// maxExternalText bounds each text of [External], in bytes.
const maxExternalText = 16 << 10

// checkExternal reports what is wrong with the options of external servers on their own; see
// [Topology.checkServers] for what is wrong with them beside others.
func (e EngineSpec) checkExternal(wrong func(field, format string, args ...any)) {
	x := e.Server
	if x == (External{}) {
		return
	}
	for _, f := range []struct{ name, text string }{
		{"url", x.URL}, {"command", x.Command}, {"env", x.Env}, {"served_model", x.Model}, {"host", x.Host}, {"kv_events", x.Events},
		{"kv_replay", x.Replay}, {"api_key_file", x.KeyFile}, {"ca_file", x.CAFile}, {"pair", x.Pair},
	} {
		if len(f.text) > maxExternalText || strings.ContainsRune(f.text, 0) {
			wrong("server."+f.name, "longer than %d bytes, or with a zero byte", maxExternalText)
		}
	}
	if x.URL != "" {
		if u, err := url.Parse(x.URL); err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
			wrong("server.url", "not the address of a server, like http://gpu-3:8001 (a key goes into api_key_file)")
		}
	}
	if x.URL != "" && x.Command != "" {
		wrong("server.command", "a server that has a url runs already: give one of them")
	}
	if x.Sleep && e.Backend != "" && !e.Sleeps() {
		wrong("server.sleep", "servers of %s do not sleep", e.Backend)
	}
	if x.Sleep && x.URL != "" {
		wrong("server.sleep", "a server that runs already was started to be able to sleep, or was not: leave it out")
	}
	x.checkSecrets(wrong)
	for _, p := range []struct {
		name string
		port int
	}{{"port", x.Port}, {"bootstrap_port", x.BootstrapPort}} {
		if p.port < 0 || p.port > 65535 {
			wrong("server."+p.name, "%d is no port", p.port)
		}
	}
	for _, f := range []struct{ name, text string }{{"kv_events", x.Events}, {"kv_replay", x.Replay}} {
		if f.text == "" || f.text == EventsOff {
			continue
		}
		at, ok := strings.CutPrefix(f.text, "tcp://")
		if _, port, err := net.SplitHostPort(at); !ok || err != nil || port == "" {
			wrong("server."+f.name, "%q is not of the form tcp://host:port", f.text)
		}
	}
	if x.Connector != "" && e.Backend != "" && !slices.Contains(ExternalConnectors(e.Backend), x.Connector) {
		wrong("server.connector", "%s", unknownConnector(e.Backend, x.Connector))
	}
}

func unknownConnector(backend, connector string) string {
	known := ExternalConnectors(backend)
	if len(known) == 0 {
		return fmt.Sprintf("%q: servers of %s exchange no KV", connector, backend)
	}
	return fmt.Sprintf("%q is not one of %s", connector, strings.Join(known, ", "))
}
