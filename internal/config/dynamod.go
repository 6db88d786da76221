package config

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// DefaultCluster is the name of a cluster that was given none.
const DefaultCluster = "local"

const defaultNamespace = cluster.DefaultNamespace

// Default listeners of the embedded servers. An agent may take a free port
// instead when one of these is in use, but only if the value is still the
// default: a port that someone chose is never replaced.
const (
	DefaultEtcdListen = "127.0.0.1:2379"
	DefaultAnyListen  = "127.0.0.1:0" // any free port
	DefaultNATSListen = "127.0.0.1:4222"
)

// Dynamod holds every setting of the node agent. Zero ints of Engine and CPU
// mean the default of the engine.
type Dynamod struct {
	Cluster   string `mapstructure:"cluster"`
	Namespace string `mapstructure:"namespace"`
	StateDir  string `mapstructure:"state_dir"`
	// SecretFile holds the secret of the cluster; empty means the one in the state directory.
	SecretFile string `mapstructure:"secret_file"`
	// Join is a join token, the path of a file with one, or "-" for standard input.
	Join Secret `mapstructure:"join"`

	Node         Node         `mapstructure:"node"`
	Log          Log          `mapstructure:"log"`
	Discovery    Discovery    `mapstructure:"discovery"`
	Kubernetes   Kubernetes   `mapstructure:"kubernetes"`
	Etcd         Etcd         `mapstructure:"etcd"`
	NATS         NATS         `mapstructure:"nats"`
	Frontend     Frontend     `mapstructure:"frontend"`
	Status       Status       `mapstructure:"status"`
	HealthCheck  HealthCheck  `mapstructure:"health_check"`
	RequestPlane RequestPlane `mapstructure:"request_plane"`
	NIXL         NIXL         `mapstructure:"nixl"`
	CPU          CPU          `mapstructure:"cpu"`
	GPU          GPU          `mapstructure:"gpu"`
	Engine       Engine       `mapstructure:"engine"`
	Disagg       Disagg       `mapstructure:"disagg"`
	Router       Router       `mapstructure:"router"`
	Multimodal   Multimodal   `mapstructure:"multimodal"`
	Rollout      Rollout      `mapstructure:"rollout"`
	Planner      Planner      `mapstructure:"planner"`
	Drain        Drain        `mapstructure:"drain"`
}

// Node names this agent and says where others reach it.
type Node struct {
	Name          string `mapstructure:"name"`
	AdvertiseHost string `mapstructure:"advertise_host"` // without a port
	// Roles are the roles whose workers belong here; empty means all.
	Roles []string `mapstructure:"roles"`
	// Taints are labels of the workers on this node.
	Taints []string `mapstructure:"taints"`
	// ServerCommands says whether commands of topologies may start servers here, one of
	// CommandsAuto, CommandsAllow and CommandsRefuse.
	ServerCommands string `mapstructure:"server_commands"`
}

// Values of [Node.ServerCommands]. By CommandsAuto they may on a node that others reach on
// loopback only: elsewhere, whoever may change the topology could run any program.
const (
	CommandsAuto   = "auto"
	CommandsAllow  = "allow"
	CommandsRefuse = "refuse"
)

// Log says what is logged and how.
type Log struct {
	Level  string `mapstructure:"level"`  // debug, info, warn, error
	Format string `mapstructure:"format"` // text, json
}

// Server modes of [Etcd] and [NATS].
const (
	ModeAuto     = "auto"     // external when an address is configured, else embedded
	ModeEmbedded = "embedded" // run the server in this process, whatever addresses are set
	ModeExternal = "external" // connect to the configured addresses
)

// Request planes, for [RequestPlane].
const (
	PlaneTCP  = string(cluster.PlaneTCP)
	PlaneHTTP = string(cluster.PlaneHTTP)
	PlaneNATS = string(cluster.PlaneNATS)
)

// Etcd is the store: an embedded server or an external cluster.
type Etcd struct {
	EtcdClient `mapstructure:",squash"`
	Mode       string        `mapstructure:"mode"`
	Listen     string        `mapstructure:"listen"` // of the embedded server
	LeaseTTL   time.Duration `mapstructure:"lease_ttl"`
}

// External reports whether to connect to Endpoints instead of running a server.
func (e Etcd) External() bool {
	return e.Mode == ModeExternal || e.Mode != ModeEmbedded && len(e.Endpoints) > 0
}

// EmbedsEtcd reports whether etcd runs in this process.
func (d Dynamod) EmbedsEtcd() bool {
	return !d.Discovery.InFiles() && !d.Discovery.InNATS() && !d.Discovery.InKubernetes() && !d.Etcd.External()
}

// NATS is the event plane and the prefill queue: embedded or external.
type NATS struct {
	NATSClient `mapstructure:",squash"`
	Mode       string `mapstructure:"mode"`
	Listen     string `mapstructure:"listen"` // of the embedded server
}

// External reports whether to connect to URL instead of running a server.
func (n NATS) External() bool {
	return n.Mode == ModeExternal || n.Mode != ModeEmbedded && n.URL != ""
}

// Frontend is the OpenAI-compatible HTTP server.
type Frontend struct {
	Enabled   bool   `mapstructure:"enabled"`
	Host      string `mapstructure:"host"`
	Port      int    `mapstructure:"port"` // 0 takes a free one
	BodyLimit Size   `mapstructure:"body_limit"`
	APIKey    Secret `mapstructure:"api_key"`
	// AllowUnauthenticated admits every client on addresses that other hosts reach, too.
	AllowUnauthenticated bool `mapstructure:"allow_unauthenticated"`
	TLSServer            `mapstructure:",squash"`
	TrustedProxies       []string      `mapstructure:"trusted_proxies"`
	CORSOrigins          []string      `mapstructure:"cors_origins"`
	AllowedHosts         []string      `mapstructure:"allowed_hosts"`
	RequestTimeout       time.Duration `mapstructure:"request_timeout"`
	WriteTimeout         time.Duration `mapstructure:"write_timeout"`
	MigrationLimit       int           `mapstructure:"migration_limit"`
	RecordLoad           bool          `mapstructure:"record_load"`
}

// Listener is an address to listen on.
type Listener struct {
	Listen string `mapstructure:"listen"` // host:port; port 0 takes a free one
}

// Status is the server for health and metrics.
type Status struct {
	Listener  `mapstructure:",squash"`
	TLSServer `mapstructure:",squash"`
	// Profiles serves profiles, too; the address must be on loopback then.
	Profiles bool `mapstructure:"profiles"`
}

// HealthCheck probes the workers of this node.
type HealthCheck struct {
	Enabled bool          `mapstructure:"enabled"`
	Wait    time.Duration `mapstructure:"wait"`
	Timeout time.Duration `mapstructure:"timeout"`
}

// RequestPlane configures the transport of requests between nodes.
type RequestPlane struct {
	Listener `mapstructure:",squash"`
	// Mode is PlaneTCP, PlaneHTTP or PlaneNATS: how this node serves requests. It calls others
	// as they are registered.
	Mode string `mapstructure:"mode"`
	// TLS encrypts it. Peers are known by the cluster's secret, not by certificates.
	TLS bool `mapstructure:"tls"`
}

// NIXL is the KV data path.
type NIXL struct {
	Listen     string   `mapstructure:"listen"`
	Transports []string `mapstructure:"transports"` // empty: best one per peer
	// CopyThreads copy at a time for transfers within this host; 0 for a number that
	// leaves most cores to computing.
	CopyThreads int `mapstructure:"copy_threads"`
	// TCPStreams is the number of connections to each peer.
	TCPStreams int `mapstructure:"tcp_streams"`
	// Checksums protect what travels over TCP, if either side has them.
	Checksums bool `mapstructure:"checksums"`
	// Encrypt turns TLS on, also without a certificate: peers are known by the cluster's
	// secret.
	Encrypt bool `mapstructure:"tls"`
	// The files are paths, or the PEM text itself. TLS is on with a certificate.
	TLSCAFile     string `mapstructure:"tls_ca_file"`
	TLSCertFile   string `mapstructure:"tls_cert_file"`
	TLSKeyFile    string `mapstructure:"tls_key_file"`
	TLSServerName string `mapstructure:"tls_server_name"` // in certificates of peers; empty: their host
}

// CPU says how many CPU devices the node offers.
type CPU struct {
	Devices int `mapstructure:"devices"`
	Cores   int `mapstructure:"cores"` // in all devices together; 0 means all
	// ISA is the set of instructions to use, auto for the best of the machine.
	ISA string `mapstructure:"isa"`
	// Activations is their precision beside bf16 weights: auto, f32 or bf16.
	Activations string `mapstructure:"activations"`
}

// Engine limits what one worker holds; 0 means the engine's default.
type Engine struct {
	KVBlocks  int `mapstructure:"kv_blocks"`
	BlockSize int `mapstructure:"block_size"` // tokens
	// KVDType is the type of keys and values, one of cluster.KVDTypes.
	KVDType        string `mapstructure:"kv_cache_dtype"`
	MaxSeqs        int    `mapstructure:"max_num_seqs"`
	MaxBatchTokens int    `mapstructure:"max_num_batched_tokens"`
	// ITLTarget bounds the time of a step that decodes and prefills.
	ITLTarget time.Duration `mapstructure:"itl_target"`
	// Speculative is in the form that [cluster.ParseSpeculative] reads.
	Speculative string `mapstructure:"speculative"`
	// TensorParallel is the number of ranks of each worker.
	TensorParallel int `mapstructure:"tensor_parallel"`
}

// Spec returns the limits in the words of a topology.
func (e Engine) Spec() cluster.EngineSpec {
	speculative, _ := cluster.ParseSpeculative(e.Speculative) // Validate has read it
	return cluster.EngineSpec{
		KVBlocks: e.KVBlocks, BlockSize: e.BlockSize, KVDType: e.KVDType,
		MaxSeqs: e.MaxSeqs, MaxBatchTokens: e.MaxBatchTokens,
		ITLTargetMS: e.ITLTarget.Milliseconds(), Speculative: speculative, TensorParallel: e.TensorParallel,
	}
}

// Disagg decides between local and remote prefill.
type Disagg struct {
	Strategy              string `mapstructure:"strategy"`
	OverlapKVTransfer     bool   `mapstructure:"overlap_kv_transfer"`
	MaxLocalPrefillTokens int    `mapstructure:"max_local_prefill_tokens"`
	MaxPrefillQueueDepth  int    `mapstructure:"max_prefill_queue_depth"`
	// Conditional is in the form that [cluster.ParseConditional] reads.
	Conditional          string        `mapstructure:"conditional"`
	RemotePrefillTimeout time.Duration `mapstructure:"remote_prefill_timeout"`
	Enforce              bool          `mapstructure:"enforce"`
}

func readsConditional(text string) error {
	_, err := cluster.ParseConditional(text)
	return err
}

// Rollout limits how many workers of a role change at the same time; see
// [cluster.Rollout].
type Rollout struct {
	MaxSurge       string `mapstructure:"max_surge"`
	MaxUnavailable string `mapstructure:"max_unavailable"`
}

// Router chooses the worker of a request.
type Router struct {
	Policy string `mapstructure:"policy"`
	// A worker above one of these gets no new requests; 0 is no limit.
	DecodeBlocks      float64 `mapstructure:"active_decode_blocks_threshold"`
	PrefillTokens     int     `mapstructure:"active_prefill_tokens_threshold"`
	PrefillTokensFrac float64 `mapstructure:"active_prefill_tokens_threshold_frac"`

	SessionAffinity    string        `mapstructure:"session_affinity"`
	SessionAffinityTTL time.Duration `mapstructure:"session_affinity_ttl"`
	QueuePolicy        string        `mapstructure:"queue_policy"`

	KVEvents bool          `mapstructure:"kv_events"`
	KVTTL    time.Duration `mapstructure:"kv_ttl"`

	ReplicaSync bool `mapstructure:"replica_sync"`
}

// Drain limits a graceful stop.
type Drain struct {
	Deadline time.Duration `mapstructure:"deadline"`
}

const maxPort = 65535

// DynamodTable returns the settings of dynamod.
func DynamodTable() Table {
	t := Table{
		Program: "dynamod",
		Sections: []Section{
			{"", "The cluster this node belongs to"},
			{"node", "This node"},
			{"log", "Logs, written to standard error"},
			{"discovery", "What holds the shared state: discovery, leases, desired state"},
			{"kubernetes", "The Kubernetes API, where it holds the shared state, and the pod of this node"},
			{"etcd", "etcd, where it holds the shared state"},
			{"nats", "NATS: events and the prefill queue"},
			{"frontend", "OpenAI-compatible HTTP server"},
			{"status", "Health, readiness and metrics over HTTP"},
			{"health_check", "Probes of workers that compute nothing"},
			{"request_plane", "Requests between frontends and workers"},
			{"nixl", "KV cache transfer between workers"},
			{"cpu", "CPU devices"},
			{"gpu", "GPUs as devices"},
			{"engine", "Limits of every worker on this node, where the topology sets none"},
			{"disagg", "Local or remote prefill"},
			{"router", "Choice of the worker"},
			{"multimodal", "Images in requests"},
			{"rollout", "How many workers of a role change at a time"},
			{"planner", "How many workers the load needs"},
			{"drain", "Stopping"},
		},
	}
	t.Keys = append(t.Keys, clusterKeys()...)
	t.Keys = append(t.Keys, discoveryKeys()...)
	t.Keys = append(t.Keys, kubernetesKeys()...)
	t.Keys = append(t.Keys,
		Key{Name: "join", Kind: KindSecret, Default: Secret(""), Help: "token of a cluster to join, a file with one, or - for standard input; what it says is kept in state_dir, so that it is needed once"},
		Key{Name: "node.name", Kind: KindString, Default: "node-1", Help: "name of this node, unique in the cluster"},
		Key{Name: "node.advertise_host", Kind: KindString, Default: "127.0.0.1", Help: "host name or address at which other nodes reach this one"},
		Key{Name: "node.roles", Kind: KindList, Default: []string{}, Choices: []string{"prefill", "decode", "encode"}, Help: "roles whose workers belong on this node; others come here only when no other node can take them; empty means all"},
		Key{Name: "node.taints", Kind: KindList, Default: []string{}, Help: "labels of the workers on this node, such as gpu=h100 or zone/a, that requests can require or prefer (nvext.routing_constraints)"},
		Key{Name: "node.server_commands", Kind: KindString, Default: CommandsAuto, Choices: []string{CommandsAuto, CommandsAllow, CommandsRefuse}, Help: "whether topologies may start servers of other engines here by a command line; auto allows it only if node.advertise_host is on loopback"},
		Key{Name: "log.level", Kind: KindString, Default: "info", Choices: []string{"debug", "info", "warn", "error"}, Help: "least severe level that is logged"},
		Key{Name: "log.format", Kind: KindString, Default: "text", Choices: []string{"text", "json"}, Help: "form of the lines: text for people, json for log collectors"},
		Key{Name: "etcd.mode", Kind: KindString, Default: ModeAuto, Choices: serverModes(), Help: "where etcd runs: embedded in this process, or external at etcd.endpoints; auto is external when endpoints are set"},
	)
	t.Keys = append(t.Keys, etcdClientKeys()...)
	t.Keys = append(t.Keys,
		Key{Name: "etcd.listen", Kind: KindString, Default: DefaultEtcdListen, Help: "address of the embedded etcd; when this default is in use, a free port is taken"},
		Key{Name: "etcd.lease_ttl", Kind: KindDuration, Default: 10 * time.Second, Aliases: []Alias{{Name: "ETCD_LEASE_TTL", Unit: "s"}}, Help: "time after which a silent worker counts as gone, in whole seconds"},
		Key{Name: "nats.mode", Kind: KindString, Default: ModeAuto, Choices: serverModes(), Help: "where NATS runs: embedded in this process, or external at nats.url; auto is external when a URL is set"},
	)
	t.Keys = append(t.Keys, natsClientKeys()...)
	t.Keys = append(t.Keys, dynamodServingKeys()...)
	t.Keys = append(t.Keys, multimodalKeys()...)
	t.Keys = append(t.Keys, plannerKeys()...)
	return t
}

func serverModes() []string { return []string{ModeAuto, ModeEmbedded, ModeExternal} }

func dynamodServingKeys() []Key {
	const million = 1_000_000
	return []Key{
		{Name: "nats.listen", Kind: KindString, Default: DefaultNATSListen, Help: "address of the embedded NATS; when this default is in use, a free port is taken"},

		{Name: "frontend.enabled", Kind: KindBool, Default: true, Help: "serve HTTP on this node"},
		{Name: "frontend.host", Kind: KindString, Default: "127.0.0.1", Aliases: []Alias{{Name: "DYN_HTTP_HOST"}}, Help: "address to listen on; 0.0.0.0 for all"},
		{Name: "frontend.port", Kind: KindInt, Default: 8000, Max: maxPort, Aliases: []Alias{{Name: "DYN_HTTP_PORT"}}, Help: "port to listen on; 0 takes a free one"},
		{Name: "frontend.body_limit", Kind: KindSize, Default: Size(45 << 20), Aliases: []Alias{{Name: "DYN_HTTP_BODY_LIMIT_MB", Unit: "MiB"}}, Help: "largest request body; larger ones are answered with 413"},
		{Name: "frontend.api_key", Kind: KindSecret, Default: Secret(""), Help: "bearer token that clients must send, or several, joined by commas: clients with different keys get equal shares of the workers; /health and /metrics require it, too, for more than the state of this node; empty admits every client"},
		{Name: "frontend.allow_unauthenticated", Kind: KindBool, Default: false, Help: "admit every client that reaches an address beyond loopback, without API keys and client certificates; without it, such a frontend does not start"},
		{Name: "frontend.tls_cert_file", FlagAlias: "tls-cert-path", Kind: KindPath, Default: "", Aliases: []Alias{{Name: "DYN_TLS_CERT_PATH"}}, Help: "certificate of the frontend, or its PEM text; with one, it serves HTTPS only, with HTTP/1.1 and HTTP/2"},
		{Name: "frontend.tls_key_file", FlagAlias: "tls-key-path", Kind: KindPath, Default: "", Aliases: []Alias{{Name: "DYN_TLS_KEY_PATH"}}, Help: "key of that certificate, or its PEM text"},
		{Name: "frontend.tls_client_ca_file", Kind: KindPath, Default: "", Help: "authorities of client certificates, or their PEM text; with them, only clients with such a certificate can connect"},
		{Name: "frontend.trusted_proxies", Kind: KindList, Default: []string{}, Help: "addresses or networks (10.0.0.0/8) of proxies whose X-Forwarded-For header is trusted for the client's address; without several keys, clients with different addresses get equal shares of the workers"},
		{Name: "frontend.cors_origins", Kind: KindList, Default: []string{}, Help: "origins of web pages that may use the frontend from a browser, such as https://chat.example.com; * for all; without an API key, POSTs of other pages are refused"},
		{Name: "frontend.allowed_hosts", Kind: KindList, Default: []string{}, Help: "names by which requests may reach the frontend over loopback without an API key, beside localhost, addresses and the name of this machine; * for all; a proxy on this machine that passes on its own name needs it"},
		{Name: "frontend.request_timeout", Kind: KindDuration, Default: 10 * time.Minute, Help: "longest time for one request; 0 means no limit"},
		{Name: "frontend.write_timeout", Kind: KindDuration, Default: 30 * time.Second, Help: "how long a client may not read what is written to it; then its request ends"},
		{Name: "frontend.migration_limit", Kind: KindInt, Default: 3, Max: 100, Aliases: []Alias{{Name: "DYN_MIGRATION_LIMIT"}}, Help: "how often a request may move to another worker when its worker fails"},
		{Name: "frontend.record_load", Kind: KindBool, Default: true, Runtime: true, Help: "remember when the requests of the last hour came, how many tokens they had and where their prompts begin alike, for dynctl get trace; no text is kept"},

		{Name: "status.listen", Kind: KindString, Default: DefaultAnyListen, Help: "address of the status server; port 0 takes a free one; with node.advertise_host, this default is port 7371, with frontend.api_key at that host"},
		{Name: "status.tls_cert_file", Kind: KindPath, Default: "", Help: "certificate of the status server, or its PEM text; with one, it serves HTTPS only"},
		{Name: "status.tls_key_file", Kind: KindPath, Default: "", Help: "key of that certificate, or its PEM text"},
		{Name: "status.tls_client_ca_file", Kind: KindPath, Default: "", Help: "authorities of client certificates, or their PEM text; with them, only clients with such a certificate can connect, and they see what the API key would show them"},
		{Name: "status.profiles", Kind: KindBool, Default: false, Help: "serve profiles of this process at /debug/pprof of the status server, for go tool pprof; only with an address on loopback"},
		{Name: "health_check.enabled", Kind: KindBool, Default: false, Aliases: []Alias{{Name: "DYN_HEALTH_CHECK_ENABLED"}}, Help: "probe each worker that computes nothing with a step of one token; one that does not answer is degraded, /health of the status server answers 503, and frontends send requests to others"},
		{Name: "health_check.wait", Kind: KindDuration, Default: 10 * time.Second, Aliases: []Alias{{Name: "DYN_CANARY_WAIT_TIME", Unit: "s"}}, Help: "how long a worker computes nothing before it is probed; longer than its longest step"},
		{Name: "health_check.timeout", Kind: KindDuration, Default: 3 * time.Second, Aliases: []Alias{{Name: "DYN_HEALTH_CHECK_REQUEST_TIMEOUT", Unit: "s"}}, Help: "how long a probe may take"},
		{Name: "request_plane.listen", Kind: KindString, Default: DefaultAnyListen, Help: "address for requests to the workers of this node; port 0 takes a free one; with node.advertise_host, this default is port 7370 of that host; not used by request_plane.mode nats"},
		{Name: "request_plane.mode", Flag: "request-plane", Kind: KindString, Default: PlaneTCP, Choices: []string{PlaneTCP, PlaneHTTP, PlaneNATS}, Aliases: []Alias{{Name: "DYN_REQUEST_PLANE"}}, Help: "how this node serves requests: tcp, the fastest; http (HTTP/2), which curl can call; or nats, for nodes that reach NATS and not each other; each node calls the others as they serve, so that nodes may differ"},
		{Name: "request_plane.tls", Kind: KindBool, Default: false, Help: "encrypt requests between nodes; the same on all nodes; needs no certificates, as both sides prove the cluster's secret within the TLS session"},
		{Name: "nixl.listen", Kind: KindString, Default: DefaultAnyListen, Help: "address for incoming KV transfers; each worker takes the first free one of 128 ports from this one on, port 0 any; with node.advertise_host, this default is port 7372 of that host"},
		{Name: "nixl.transports", Kind: KindList, Default: []string{}, Choices: []string{"local", "cudaipc", "shm", "cma", "ucx", "tcp"}, FormerChoices: map[string]string{"pvm": "cma"}, Help: "transports to use; empty chooses the best one for each peer, in this order: local, cudaipc (between GPUs), shm, cma, ucx, tcp; ucx only with an RDMA device unless it is named, which needs the library libucp; a worker does not start with one that cannot be used"},
		{Name: "nixl.copy_threads", Kind: KindInt, Default: 0, Max: 64, Help: "threads that copy at a time for transfers within a host; 0 means half of the cores, at most 4"},
		{Name: "nixl.tcp_streams", Kind: KindInt, Default: 2, Min: 1, Max: 16, Help: "TCP connections to each peer, over which one transfer is spread"},
		{Name: "nixl.checksums", Kind: KindBool, Default: false, Help: "send a CRC-32C with all that travels over TCP and fail what does not match; done if either side of a transfer wants it"},
		{Name: "nixl.tls", Kind: KindBool, Default: false, Help: "encrypt transfers over TCP, not those of ucx; the same on all nodes; needs no certificates, as both sides prove the cluster's secret within the TLS session"},
		{Name: "nixl.tls_cert_file", Kind: KindPath, Default: "", Help: "certificate of this node for transfers over TCP, or its PEM text; with one, all such transfers are encrypted, and both sides also show certificates"},
		{Name: "nixl.tls_key_file", Kind: KindPath, Default: "", Help: "key of that certificate, or its PEM text"},
		{Name: "nixl.tls_ca_file", Kind: KindPath, Default: "", Help: "authorities whose certificates are accepted from peers, or their PEM text"},
		{Name: "nixl.tls_server_name", Kind: KindString, Default: "", Help: "name in the certificates of all peers; empty means the host at which each is reached"},

		{Name: "cpu.devices", Kind: KindInt, Default: 0, Min: -1, Max: 256, Help: "how many CPU devices to offer, 0 for one on each NUMA node, -1 for none, so that the node is a frontend alone or computes on GPUs alone; more of them isolate workers from each other and slow each decode step"},
		{Name: "cpu.cores", Kind: KindInt, Default: 0, Max: 4096, Help: "cores of all CPU devices together; 0 means all that the process may use, also under a quota of its control group"},
		{Name: "cpu.isa", Kind: KindString, Default: "auto", Choices: []string{"auto", "portable", "avx2", "avx512", "amx", "neon"}, Help: "set of instructions for computing; auto takes the best one that the machine has"},
		{Name: "cpu.activations", Kind: KindString, Default: "auto", Choices: []string{"auto", "f32", "bf16"}, Help: "precision of activations that meet bf16 weights, keys or values; auto rounds them to bf16 where that is faster (AMX, AVX512_BF16 of AMD), bf16 wherever the processor can (FEAT_BF16 of arm64, too), f32 never does"},

		{Name: "gpu.devices", Kind: KindString, Default: GPUsNone, Help: "GPUs to offer as devices: none, all, or their indexes such as 0,2; those joined by + are one device whose workers are tensor-parallel, such as 0+1,2+3; engines on GPUs have not yet run on hardware, so none are used unless they are named"},
		{Name: "gpu.memory_utilization", Kind: KindShare, Default: 0.9, Help: "share of the memory of a GPU that may be in use, by other processes, too; what a worker needs beyond it is refused with the figures"},
		{Name: "gpu.kv_share", Kind: KindShare, Default: 0.5, Help: "share of the remaining GPU memory that a worker takes for KV blocks when their number is not set; 1 where each GPU has one worker"},
		{Name: "gpu.batch_invariant", Kind: KindBool, Default: false, Help: "compute every token with the same kernels, so that an answer does not depend in its last bits on what else a step computes; slower"},
		{Name: "gpu.portable_kernels", Kind: KindBool, Default: false, Help: "compute with the kernels that run on every GPU, also where there are faster ones for its compute capability (9.0), to compare them"},
		{Name: "gpu.overlap_launches", Kind: KindBool, Default: false, Help: "launch each kernel of a step while the one before it still runs, so that it is there when that ends (programmatic dependent launch; compute capability 9.0, CUDA 12.3); off until it has been tried on hardware"},

		{Name: "engine.kv_blocks", Kind: KindInt, Default: 0, Max: 1000 * million, Help: "KV blocks of each worker; 0 sizes the pool by the free memory"},
		{Name: "engine.block_size", Kind: KindInt, Default: 0, Help: "tokens in a KV block: 16, 32, 64 or 128; 0 means 64"},
		{Name: "engine.kv_cache_dtype", Former: []string{"engine.kv_dtype"}, Kind: KindString, Default: "auto", Choices: cluster.KVDTypes, Help: "type of keys and values; auto is f32 for models with weights of f32 and bf16 for all others"},
		{Name: "engine.max_num_seqs", Former: []string{"engine.max_seqs"}, Kind: KindInt, Default: 0, Max: million, Help: "sequences that one worker runs at once; 0 means the engine's default"},
		{Name: "engine.max_num_batched_tokens", Former: []string{"engine.max_batch_tokens"}, Kind: KindInt, Default: 0, Max: 100 * million, Help: "tokens in one engine step; 0 means the engine's default"},
		{Name: "engine.itl_target", Kind: KindDuration, Default: time.Duration(0), Help: "longest time between two tokens of an answer while prompts are computed beside: chunks of prompts are made as small as that needs; in whole milliseconds, a long one such as 1h turns it off, 0 means the engine's default of 200ms"},
		{Name: "engine.speculative", Kind: KindString, Default: "", Help: "how tokens are proposed and then verified several at a time, without changing any answer: off, ngram, or ngram:5 for at most five tokens; empty means off"},
		{Name: "engine.tensor_parallel", Kind: KindInt, Default: 0, Max: 1024, Help: "ranks of each worker, which share the heads of each layer and have memory for KV of their own; divides query heads and KV heads, changes no answer but by roundings of sums on GPUs, and may differ between workers that exchange KV blocks; on GPUs it must be the number of GPUs that gpu.devices joins; 0 means that number, and 1 on CPUs"},

		{Name: "disagg.strategy", Kind: KindString, Default: "decode-first", Choices: []string{"decode-first", "prefill-first"}, FormerChoices: map[string]string{"queue": "decode-first", "router": "prefill-first"}, Runtime: true, Help: "which worker is chosen first; with decode-first, the decode worker, which puts long prompts on the prefill queue; with prefill-first, the frontend chooses a prefill worker and then the decode worker that gets its KV"},
		{Name: "disagg.overlap_kv_transfer", Former: []string{"disagg.background_prefill"}, Kind: KindBool, Default: true, Runtime: true, Help: "with prefill-first, move KV blocks while later ones are computed, where the prefill worker has a bootstrap endpoint; else the decode worker reads them when all are computed"},
		{Name: "disagg.conditional", Kind: KindString, Default: cluster.ConditionalLeastDelay, Choices: cluster.ConditionalRules(), Form: cluster.ConditionalForm, Reads: readsConditional, Runtime: true, Aliases: []Alias{{Name: "DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG"}, {Name: "DYN_ROUTER_CONDITIONAL_DISAGG"}}, Help: "rule by which a decode worker prefills a prompt itself: least-delay where that delays it and other requests least, by measured speeds, queues, caches and free KV; slo where it is computed sooner; threshold uses the two settings below; isl-bounding, prefill-load and isl-or-load are Dynamo's, and a JSON object configures them; off never"},
		{Name: "disagg.max_local_prefill_tokens", Kind: KindInt, Default: 64, Max: 100 * million, Runtime: true, Help: "prompts with at most this many uncached tokens are prefilled by the decode worker itself, with disagg.conditional: threshold, or while it compares speeds and one is unknown"},
		{Name: "disagg.max_prefill_queue_depth", Kind: KindInt, Default: 64, Max: million, Runtime: true, Help: "when the prefill queue holds this many requests, or with prefill-first waiting for prefill workers, decode workers prefill themselves, with disagg.conditional: threshold, or while it compares speeds and one is unknown"},
		{Name: "disagg.remote_prefill_timeout", Kind: KindDuration, Default: 30 * time.Second, Runtime: true, Help: "longest wait for a remote prefill before the decode worker does it itself"},
		{Name: "disagg.enforce", Kind: KindBool, Default: false, Runtime: true, Aliases: []Alias{{Name: "DYN_ENFORCE_DISAGG"}}, Help: "answer 503 when no prefill worker exists, has room or succeeds, in place of prefilling at the decode worker"},

		{Name: "router.policy", Kind: KindString, Default: "kv", Choices: []string{"round-robin", "least-loaded", "kv", "power-of-two", "random", "direct"}, Runtime: true, Aliases: []Alias{{Name: "DYN_ROUTER_MODE"}}, Help: "how a frontend chooses the decode worker: kv takes the one where the prompt costs least, by its KV cache and by what waits there; least-loaded the one with the fewest requests; round-robin the next in turn; with direct, each request names the worker"},
		{Name: "router.active_decode_blocks_threshold", Kind: KindRatio, Default: 0.0, Max: 1, Runtime: true, Aliases: []Alias{{Name: "DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD"}}, Help: "share of a worker's KV blocks in use, such as 0.9, above which it gets no new requests; with all workers above it, requests are answered with 429; 0 means no limit"},
		{Name: "router.active_prefill_tokens_threshold", Kind: KindInt, Default: 0, Max: 100 * million, Runtime: true, Aliases: []Alias{{Name: "DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD"}}, Help: "prompt tokens that wait to be computed at a worker, above which it gets no new requests; 0 means no limit"},
		{Name: "router.active_prefill_tokens_threshold_frac", Kind: KindRatio, Default: 0.0, Max: 1000, Runtime: true, Aliases: []Alias{{Name: "DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC"}}, Help: "the same as a multiple of the worker's engine.max_num_batched_tokens, such as 1.5; the lower limit of the two counts, 0 means no limit"},
		{Name: "router.session_affinity", Kind: KindString, Default: "soft", Choices: []string{"off", "soft", "hard"}, Runtime: true, Help: "whether requests with the same session id (X-Dynamo-Session-ID, nvext.session_id) go to the same decode worker: soft prefers it, hard allows no other one while it serves"},
		{Name: "router.session_affinity_ttl", Kind: KindDuration, Default: 10 * time.Minute, Runtime: true, Aliases: []Alias{{Name: "DYN_ROUTER_SESSION_AFFINITY_TTL_SECS", Unit: "s"}}, Help: "how long after its last request a frontend remembers the worker of a session"},
		{Name: "router.queue_policy", Kind: KindString, Default: "fcfs", Choices: []string{"fcfs", "wspt"}, Runtime: true, Aliases: []Alias{{Name: "DYN_ROUTER_QUEUE_POLICY"}}, Help: "which of a client's waiting requests goes to a worker first, within a priority: fcfs the one that came first; wspt the one with the fewest uncached prompt tokens, each counted as a millisecond of arriving later"},

		{Name: "router.kv_events", Kind: KindBool, Default: true, Aliases: []Alias{{Name: "DYN_ROUTER_USE_KV_EVENTS"}, {Name: "DYN_KV_EVENTS"}}, Help: "know the workers' KV caches by their events; false assumes that a worker has the blocks of the prompts that were sent to it, for router.kv_ttl"},
		{Name: "router.kv_ttl", Kind: KindDuration, Default: 120 * time.Second, Aliases: []Alias{{Name: "DYN_ROUTER_TTL_SECS", Unit: "s"}, {Name: "DYN_ROUTER_TTL", Unit: "s"}}, Help: "how long blocks are assumed where a prompt was sent, with router.kv_events: false"},
		{Name: "router.replica_sync", Kind: KindBool, Default: true, Aliases: []Alias{{Name: "DYN_ROUTER_REPLICA_SYNC"}}, Help: "frontends tell each other over the event plane what they have in flight, so that each one counts the load of all; false counts only its own requests"},

		{Name: "rollout.max_surge", Kind: KindString, Default: cluster.DefaultRollout, Form: cluster.RolloutForm, Reads: cluster.CheckRollout, Runtime: true, Help: "successors of a role that may start at a time, before the workers that they replace leave, when a model or engine changes: a number, or a share of the role's workers, of which at least one; 0 changes workers in place"},
		{Name: "rollout.max_unavailable", Kind: KindString, Default: cluster.DefaultRollout, Form: cluster.RolloutForm, Reads: cluster.CheckRollout, Runtime: true, Help: "workers of a role that may restart at a time, by dynctl restart --rolling or where successors have no room: a number, or a share of the role's workers, of which at least one; one of a role always serves; 0 stops no worker before its successor serves"},

		{Name: "drain.deadline", Kind: KindDuration, Default: 60 * time.Second, Help: "how long a stop by SIGTERM waits for running requests"},
	}
}
