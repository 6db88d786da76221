package process

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Need says what a server is started for.
type Need struct {
	Backend string
	Role    cluster.Role
	Server  cluster.External // with a Command
	// Host is where servers on other machines reach this one to exchange KV; empty means that
	// there are none. Server.Host comes first.
	Host string
}

// Launch is how a server is started, and how it is reached then.
type Launch struct {
	Words []string // of the command line, with what was added
	Env   []string // of Server.Env, with what was added
	URL   string
	// BootstrapPort, Events and Replay are as in [cluster.External], empty without. With
	// Listen the server connects to Events.
	BootstrapPort  int
	Events, Replay string
	Listen         bool
	Ranks          int // data-parallel ranks
}

// loopback is where a server listens that only this process asks.
const loopback = "127.0.0.1"

// Plan splits the command line of a server and adds what its role, ports, KV events and KV
// exchange need, unless it has them. Ports that are 0 become free ones; a port that is taken
// is an error. Nothing is started.
func Plan(n Need) (Launch, error) {
	words, err := cluster.CommandWords(n.Server.Command)
	if err != nil {
		return Launch{}, fmt.Errorf("command: %w", err)
	}
	if n.Role == cluster.RoleEncode && !(cluster.EngineSpec{Backend: n.Backend}).Encodes() {
		return Launch{}, fmt.Errorf("a server of %s encodes nothing for others here", n.Backend)
	}
	p := &plan{Need: n, Launch: Launch{Words: words, Ranks: 1}, taken: map[int]bool{}}
	for line := range strings.SplitSeq(n.Server.Env, "\n") {
		if line != "" {
			p.Env = append(p.Env, line)
		}
	}
	if p.Host == "" {
		p.Host = loopback
	}
	if p.Server.Host != "" {
		p.Host = p.Server.Host
	}
	add := map[string]func() error{
		cluster.BackendVLLM: p.vllm, cluster.BackendSGLang: p.sglang, cluster.BackendTensorRTLLM: p.trtllm, cluster.BackendOpenAI: p.openai,
	}[n.Backend]
	if add == nil {
		return Launch{}, fmt.Errorf("%q is no server of its own", n.Backend)
	}
	if err := add(); err != nil {
		return Launch{}, err
	}
	return p.Launch, nil
}

// plan is a launch that grows.
type plan struct {
	Need
	Launch
	taken map[int]bool // ports that were given away
}

// connector is the configured way to exchange KV, or the default.
func (p *plan) connector() string {
	if p.Server.Connector == "" {
		return cluster.ExternalConnectors(p.Backend)[0]
	}
	return p.Server.Connector
}

func (p *plan) vllm() error {
	if err := p.ranks("--data-parallel-size", "-dp"); err != nil {
		return err
	}
	if err := p.port(loopback, true); err != nil {
		return err
	}
	p.flag("--enable-prompt-tokens-details") // what of a prompt was in the cache
	if p.Server.Sleep {
		p.flag("--enable-sleep-mode")
		p.variable("VLLM_SERVER_DEV_MODE", "1") // without it nobody can order it
	}
	if p.Role == cluster.RoleEncode { // it has neither prompts nor their KV
		p.flag("--mm-encoder-only")
		p.flag("--no-enable-prefix-caching")
		return nil
	}
	switch p.connector() {
	case "nixl":
		p.add("--kv-transfer-config", `{"kv_connector":"NixlConnector","kv_role":"kv_both"}`)
		if err := p.variablePort("VLLM_NIXL_SIDE_CHANNEL_PORT", 0, p.Ranks); err != nil {
			return err
		}
		p.variable("VLLM_NIXL_SIDE_CHANNEL_HOST", p.Host)
	case "mooncake":
		role := "kv_consumer"
		if p.Role == cluster.RolePrefill {
			role = "kv_producer"
			if err := p.variablePort("VLLM_MOONCAKE_BOOTSTRAP_PORT", p.Server.BootstrapPort, 1); err != nil {
				return err
			}
			text, _ := p.environment("VLLM_MOONCAKE_BOOTSTRAP_PORT")
			var err error
			if p.BootstrapPort, err = strconv.Atoi(text); err != nil {
				return fmt.Errorf("env: VLLM_MOONCAKE_BOOTSTRAP_PORT is %q", text)
			}
		}
		p.add("--kv-transfer-config", `{"kv_connector":"MooncakeConnector","kv_role":"`+role+`"}`)
	}
	return p.events()
}

// ranks reads the number of data-parallel ranks.
func (p *plan) ranks(options ...string) error {
	text, ok := p.option(options...)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 256 {
		return fmt.Errorf("command: %q data-parallel ranks", text)
	}
	p.Ranks = n
	return nil
}

func (p *plan) sglang() error {
	if err := p.ranks("--data-parallel-size", "--dp-size", "--dp"); err != nil {
		return err
	}
	exchanges := p.connector() != "none"
	host := loopback
	if exchanges && p.Role == cluster.RolePrefill {
		host = p.Host // its bootstrap server listens where it does
	}
	if err := p.port(host, true); err != nil {
		return err
	}
	p.flag("--enable-metrics")
	if p.Server.Sleep {
		p.flag("--enable-memory-saver")
		p.flag("--enable-weights-cpu-backup")
	}
	if exchanges {
		p.add("--disaggregation-mode", string(p.Role))
		if p.Role == cluster.RolePrefill {
			var err error
			if p.BootstrapPort, err = p.portOf("--disaggregation-bootstrap-port", host, p.Server.BootstrapPort); err != nil {
				return err
			}
		}
	}
	return p.events()
}

func (p *plan) trtllm() error { return p.port(loopback, false) }

// openai is llama.cpp's server, or one with the same option. Ollama has a variable.
func (p *plan) openai() error {
	if filepath.Base(p.Words[0]) != "ollama" {
		return p.port(loopback, false)
	}
	if at, ok := p.environment("OLLAMA_HOST"); ok {
		p.URL = "http://" + strings.TrimPrefix(at, "http://")
		return nil
	}
	port, err := p.ports(loopback, p.Server.Port, 1)
	if err != nil {
		return err
	}
	at := net.JoinHostPort(loopback, strconv.Itoa(port))
	p.URL = "http://" + at
	p.variable("OLLAMA_HOST", at)
	return nil
}

// port has the server listen, at a host if it is told one.
func (p *plan) port(host string, tells bool) error {
	if at, ok := p.option("--host"); ok {
		host = at
		if ip := net.ParseIP(at); ip != nil && ip.IsUnspecified() {
			host = loopback
		}
	} else if tells {
		p.add("--host", host)
	}
	port, err := p.portOf("--port", host, p.Server.Port)
	if err != nil {
		return err
	}
	p.URL = "http://" + net.JoinHostPort(host, strconv.Itoa(port))
	return nil
}

// portOf adds an option with a port, unless the command line has it, and returns the port.
func (p *plan) portOf(option, host string, want int) (int, error) {
	if text, ok := p.option(option); ok {
		port, err := strconv.Atoi(text)
		switch {
		case err != nil || port < 1 || port > 65535:
			return 0, fmt.Errorf("command: %s %s is no port", option, text)
		case want != 0 && want != port:
			return 0, fmt.Errorf("command: %s is %d there, and %d is configured", option, port, want)
		}
		want = port
	}
	port, err := p.ports(host, want, 1)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", option, err)
	}
	p.add(option, strconv.Itoa(port))
	return port, nil
}

// published is the value of --kv-events-config.
type published struct {
	Enable    *bool  `json:"enable_kv_cache_events,omitempty"`
	Publisher string `json:"publisher,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
	Replay    string `json:"replay_endpoint,omitempty"`
}

// events has the server publish KV events. It listens only where its endpoint has a *, and
// then for everybody, so it connects to this process unless an address is configured.
func (p *plan) events() error {
	const option = "--kv-events-config"
	if p.Server.Events == cluster.EventsOff {
		return nil
	}
	if text, ok := p.option(option); ok {
		return p.published(text)
	}
	on := true
	config := published{Enable: &on, Publisher: "zmq"}
	if p.Server.Events == "" {
		port, err := p.ports(loopback, 0, 2*p.Ranks)
		if err != nil {
			return fmt.Errorf("%s: %w", option, err)
		}
		p.Events = "tcp://" + net.JoinHostPort(loopback, strconv.Itoa(port))
		p.Replay = "tcp://" + net.JoinHostPort(loopback, strconv.Itoa(port+p.Ranks))
		p.Listen, config.Endpoint, config.Replay = true, p.Events, p.Replay
	} else {
		p.Events, p.Replay = p.Server.Events, p.Server.Replay
		host, port, err := endpoint(p.Events)
		if err != nil {
			return err
		}
		config.Endpoint = "tcp://*:" + port
		if p.Listen = host == "*"; p.Listen {
			p.Events = "tcp://" + net.JoinHostPort(loopback, port)
			config.Endpoint = p.Events
		}
		if p.Replay != "" {
			if _, port, err = endpoint(p.Replay); err != nil {
				return err
			}
			config.Replay = "tcp://*:" + port
		}
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return err
	}
	p.add(option, string(raw))
	return nil
}

// published understands the configuration of events on the command line.
func (p *plan) published(text string) error {
	var config published
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return fmt.Errorf("command: --kv-events-config: %w", err)
	}
	if config.Enable != nil && !*config.Enable || config.Publisher == "null" {
		return nil
	}
	if config.Endpoint == "" {
		config.Endpoint = "tcp://*:5557" // vLLM's and SGLang's default
	}
	host, port, err := endpoint(config.Endpoint)
	if err != nil {
		return err
	}
	// It listens where there is a *, and connects elsewhere.
	if p.Listen = host != "*"; p.Listen {
		p.Events = config.Endpoint
	} else {
		p.Events = "tcp://" + net.JoinHostPort(loopback, port)
	}
	if config.Replay != "" {
		if host, port, err = endpoint(config.Replay); err != nil {
			return err
		}
		if host == "*" {
			host = loopback
		}
		p.Replay = "tcp://" + net.JoinHostPort(host, port)
	}
	return nil
}

// endpoint takes tcp://host:port apart.
func endpoint(text string) (host, port string, err error) {
	at, ok := strings.CutPrefix(text, "tcp://")
	host, port, err = net.SplitHostPort(at)
	if !ok || err != nil || host == "" {
		return "", "", fmt.Errorf("KV events: %q is not of the form tcp://host:port", text)
	}
	return host, port, nil
}
