package deps

import "slices"

// Packages of this module are named as below internal/, or as cmd/... and dynamo; those of
// the standard library as std:...; "x/..." means x and everything below it, and "...x"
// all packages of this module whose path ends in x.

// only lists all that a package may import of this module. A package without a
// rule here is one of those that put others together.
type only struct {
	pkg string
	may []string
	why string
}

var onlyRules = []only{
	{"cluster", nil, "the nouns: every other package uses them"},
	{"metrics", nil, "names and counters: every other package uses them"},
	{"config", []string{"cluster"}, "settings know nouns, not parts; cluster owns the default namespace and the rules of names"},
	{"topofile", []string{"cluster", "config", "chat/parse"}, "a file and what it declares: pure; settings and formats of tool calls are described where they belong"},
	{"blockhash", nil, "a pure function that workers and routers must agree on"},
	{"protocol", []string{"blockhash", "cluster"}, "messages are nouns with an encoding"},
	{"tokenizer", nil, "pure: knows nothing of serving"},
	{"jsonscan", nil, "pure: a text in, its parts out"},
	{"jinja", []string{"jsonscan"}, "pure: knows nothing of serving"},
	{"chat", []string{"chat/parse", "cluster", "grammar", "tokenizer", "jinja", "jsonscan", "protocol"}, "text in, tokens out; the frontend does the serving"},
	{"chat/parse", nil, "pure: a text and its formats; dynctl asks it for their names"},
	{"grammar/...", []string{"grammar/...", "jsonscan"}, "pure: texts and bytes of tokens in, masks out"},
	{"router", []string{"cluster"}, "decisions are pure; state and time are passed in"},
	{"planner", []string{"cluster", "planner/predict"}, "decisions are pure; observations and time are passed in"},
	{"planner/live", []string{"cluster", "events", "failpoint", "kube", "metrics", "planner", "profile", "store"}, "observes a cluster for the planner and carries out what it decides; who leads, and settings, are for the agent"},
	{"planner/predict", nil, "pure: a series in, its continuation out"},
	{"lab/planner", []string{"cluster", "planner", "planner/predict"}, "plays loads on pretended workers; it knows no real one"},
	{"kvindex", []string{"cluster"}, "a data structure: events and their order are for whoever feeds it"},
	{"kvfeed", []string{"cluster", "events", "kvindex", "protocol", "runtime"}, "events become an index; routing is for frontends"},
	{"replicasync", []string{"cluster", "events", "metrics", "protocol", "requestplane", "router", "runtime", "store"}, "requests of other frontends become load; what is done with it is for the router"},
	{"store", []string{"cluster", "kube", "natsconn", "ondemand"}, "etcd, NATS, files and Kubernetes behind an interface; runtime joins it with the other planes"},
	{"kube", []string{"cluster"}, "the Kubernetes API and what NVIDIA Dynamo keeps there; the store makes keys of it"},
	{"events", []string{"cluster", "natsconn", "protocol", "metrics"}, "NATS behind an interface; runtime joins it with the other planes"},
	{"natsconn", nil, "options of a client library"},
	{"handshake", nil, "the first bytes of a connection, whatever follows"},
	{"natspipe", []string{"events"}, "byte streams over the event plane's connection, whatever they carry"},
	{"requestplane", []string{"cluster", "handshake", "natspipe", "protocol", "metrics"}, "streams behind an interface; runtime joins it with the other planes"},
	{"runtime", []string{"cluster", "ondemand", "store", "events", "requestplane", "protocol", "metrics"}, "joins the planes and knows nothing of models"},
	{"dynamo", []string{"cluster", "config", "credentials", "dial", "events", "handshake", "natspipe", "outside", "protocol", "requestplane", "runtime", "statedir", "store", "tokenizer", "undo"}, "a face of the runtime for other programs"},
	{"outside", []string{"chat", "cluster", "model/minitok", "protocol", "requestplane", "runtime", "tokenizer"}, "engines elsewhere; tokenizer and templates are those that frontends use"},
	{"external", []string{"cluster", "jsonscan", "protocol"}, "what servers of other engines have in common; no engine, no worker"},
	{"external/wire", []string{"cluster", "external", "jsonscan", "openai", "protocol", "requestplane"}, "HTTP, and what adapters share; it knows no engine. openai reads streams of events"},
	{"external/vllm", []string{"cluster", "external", "external/wire", "protocol"}, "an adapter knows its server, and no worker and no other adapter"},
	{"external/sglang", []string{"cluster", "external", "external/wire", "protocol"}, "an adapter knows its server, and no worker and no other adapter"},
	{"external/trtllm", []string{"cluster", "external", "external/wire", "protocol"}, "an adapter knows its server, and no worker and no other adapter"},
	{"external/openai", []string{"cluster", "external", "external/wire", "protocol"}, "an adapter knows its server, and no worker and no other adapter"},
	{"external/engines", []string{"cluster", "external", "external/openai", "external/sglang", "external/trtllm", "external/vllm", "external/wire"}, "the table of adapters"},
	{"external/kvevents", []string{"blockhash", "cluster", "external/kvevents/zmtp"}, "events of servers become blocks of the router; it knows no engine and no worker"},
	{"external/kvevents/zmtp", nil, "a wire protocol, whatever it carries"},
	{"external/process", []string{"cluster"}, "runs a program of others; what it serves is for whoever asks it"},
	{"external/inferencesimtest", []string{"orphan", "patience"}, "runs a program of others"},
	{"attach", []string{"cluster", "events", "handshake", "outside", "protocol", "requestplane", "runtime"}, "holds what is outside for a node, and knows nothing of nodes"},
	{"embedded", []string{"cluster", "credentials", "host", "ownerfile"}, "runs servers, and looks whether the disk has room for them; clients are elsewhere"},
	{"credentials", []string{"cluster", "ownerfile"}, "a secret and what follows from it: pure but for its file"},
	{"fairqueue", nil, "pure: turns between tenants, for whoever has a queue"},
	{"ondemand", nil, "goroutines that come and go: whoever is idle most of the time uses it"},
	{"certs", []string{"config", "ownerfile"}, "certificates and their files, for whoever listens or connects"},
	{"ownerfile", nil, "writes a file: whoever has secrets uses it"},
	{"failpoint", nil, "names of steps: whoever has steps uses it"},
	{"stdout", nil, "whether an answer arrived: programs use it"},
	{"patience", nil, "how long tests wait"},
	{"proxytest", []string{"patience"}, "carries bytes of tests, whatever they mean"},
	{"orphan", nil, "ends processes of tests: whoever starts some uses it"},
	{"host", nil, "the machine, for whoever computes or advises"},
	{"sharedmem", nil, "an allocator: backends and the data path use it without knowing each other"},
	{"dynlib", nil, "a loader: knows no library"},
	{"nixl/...", []string{"cluster", "dynlib", "handshake", "metrics", "nixl/...", "ondemand", "orphan", "patience", "proxytest", "sharedmem"}, "moves bytes, some through a C library that a machine may have; what they mean is the worker's business"},
	{"engine", []string{"cluster", "fairqueue", "kvlayout", "model/...", "metrics", "protocol", "blockhash"}, "knows no backend: the agent injects it"},
	{"engine/cpu/...", []string{"cluster", "engine", "engine/cpu/...", "kvlayout", "model/...", "metrics", "host", "patience", "sharedmem"}, "a backend is arithmetic"},
	{"engine/gpu/...", []string{"cluster", "engine", "engine/gpu/...", "cuda/...", "kvlayout", "model/...", "metrics", "protocol"}, "a backend is arithmetic, this one on kernels of a driver that it is given"},
	{"engine/mock/...", []string{"cluster", "engine", "engine/mock/...", "kvlayout", "model/...", "metrics", "protocol", "sharedmem"}, "a backend is arithmetic, this one pretended"},
	{"kvlayout", nil, "pure: engine, backends and kernels agree on it without knowing each other"},
	{"cuda/...", []string{"cluster", "cuda/...", "dynlib", "kvlayout"}, "a driver that a machine may have, and kernels; engine/gpu computes with them. It satisfies nixl's interfaces without importing them"},
	{"lab/cuda/...", []string{"cuda/...", "dynlib", "kvlayout", "lab/cuda/...", "model/safetensors"}, "stands for a driver and for kernels, and knows no engine"},
	{"worker/kv", []string{"cluster", "engine", "failpoint", "kvlayout", "nixl", "ondemand", "protocol", "store"}, "moves KV blocks between workers; which blocks, and when, is for the roles to say"},
	{"media/source", nil, "loads content within bounds and knows no format"},
	{"worker/media", []string{"blockhash", "cluster", "engine", "failpoint", "fairqueue", "nixl", "protocol", "requestplane", "runtime", "sharedmem", "worker/kv"}, "moves embeddings between workers; it knows no role"},
	{"worker/role", []string{"cluster", "engine", "events", "metrics", "protocol", "requestplane", "router", "runtime", "worker/kv", "worker/media"}, "workers and roles agree on it; it knows no role and no worker"},
	{"worker/prefill", []string{"cluster", "engine", "events", "failpoint", "metrics", "nixl", "protocol", "requestplane", "worker/kv", "worker/media", "worker/role"}, "a role knows its term, and no worker and no other role"},
	{"worker/decode", []string{"cluster", "engine", "events", "failpoint", "metrics", "nixl", "protocol", "requestplane", "router", "runtime", "worker/kv", "worker/media", "worker/role"}, "a role knows its term, and no worker and no other role"},
	{"worker/encode", []string{"cluster", "metrics", "protocol", "requestplane", "worker/media", "worker/role"}, "a role knows its term, and no worker and no other role"},
	{"model/idefics", nil, "figures: whoever reads config.json assumes the same"},
	{"model/...", []string{"cluster", "model/...", "tokenizer", "jinja", "jsonscan"}, "files become tensors; who computes with them is above"},
	{"inspect", []string{"model/...", "chat", "tokenizer", "jinja"}, "describes a model on this machine and knows no cluster"},
	{"media/picture", nil, "pure: files of images in, pixels out; what a model makes of them is for others"},
	{"media/prepare", []string{"media/picture", "model/idefics"}, "pure: a picture and a checkpoint's files in, numbers and texts out; it knows no model and no prompt, but what both assume where files say nothing"},
	{"tensorfile", []string{"model/safetensors"}, "pure: bytes in, tensors out; safetensors are parsed as weights are"},
	{"mooncake", nil, "pure: the text of a trace in, requests out; load generators and simulations play them"},
	{"profile", nil, "pure: figures of a worker in, predictions out; planners and simulations use it"},
	{"simulate", []string{"bench/arrival", "bench/stats", "bench/workload", "blockhash", "cluster", "engine", "engine/mock", "fairqueue", "kvindex", "mooncake", "profile", "protocol", "router"}, "plays decisions and engines in virtual time: no clock, no network"},
	{"bench", []string{"bench/...", "openai"}, "sends a load to any server and knows no cluster"},
	{"profiler", []string{"bench", "bench/workload", "openai", "profile"}, "measures any server and knows no cluster"},
	{"bench/arrival", nil, "pure: a rate in, times out"},
	{"bench/workload", []string{"mooncake"}, "pure: lengths and texts of prompts; who sends them is above"},
	{"bench/stats", nil, "pure: numbers in, figures with their intervals out"},
	{"recall", nil, "pure: texts; dynctl and cluster tests ask with them"},
	{"recall/drawn", nil, "pure: pictures and questions about them; dynctl and cluster tests ask with them, and the trainer learns from them"},
	{"openai", nil, "a client of a public API: knows no cluster"},
	{"tui/...", []string{"cluster", "client", "tui/..."}, "draws what a source delivers and fetches nothing itself"},
	{"tui/cells", nil, "pure: text measured in cells"},
	{"tui/draw", []string{"tui/cells"}, "paints and knows nothing of clusters"},
	{"tui/layout", []string{"tui/cells", "tui/draw"}, "pure: a size and a focus become places"},
	{"tui/table", []string{"tui/cells", "tui/draw"}, "rows are numbers: what they are about is the pane's business"},
	{"tui/plain", []string{"tui/cells", "tui/draw"}, "rows of text: what they are about is the pane's business"},
	{"tui/moment", []string{"cluster", "tui/cells", "tui/draw"}, "what panes and screens read; it asks no source"},
	{"tui/detail", []string{"cluster", "tui/cells", "tui/draw", "tui/moment", "tui/plain"}, "a screen reads the moment and knows no pane"},
	{"tui/pane", []string{"cluster", "tui/cells", "tui/draw", "tui/moment", "tui/plain", "tui/detail", "tui/table"}, "a pane reads the moment and knows no frame: keys reach it through its rows and its subject"},

	// Verbs of dynctl do not know each other: what two of them need is a leaf.
	{"cli", slices.Concat(cliVerbs, cliLeaves, []string{"stdout", "version"}), "puts the commands together"},
	{"cli/term", nil, "what a terminal can do, and text on it"},
	{"cli/progress", []string{"cli/term"}, "draws how far an operation is, whatever it is"},
	{"cli/manual", nil, "pages about commands, as text: pure"},
	{"cli/hush", nil, "is initialized before all that could ask the terminal"},
	{"cli/launch", []string{"statedir"}, "starts and stops dynamod processes of this machine"},
	{"cli/human", []string{"cli/term", "cluster"}, "values as people read them: pure"},
	{"cli/exit", []string{"cli/term", "client", "config", "store"}, "errors of commands; their codes follow from errors of these"},
	{"cli/output", []string{"cli/term", "cli/progress", "cli/exit"}, "answers in all forms, and questions; knows no cluster"},
	{"cli/session", []string{"certs", "cli/term", "cli/exit", "cli/output", "client", "config", "dial", "statedir"}, "settings and connections of one run"},
	{"cli/command", []string{"cli/exit", "cli/output", "cli/progress", "cli/session", "config"}, "makes commands, and knows none"},
	{"cli/help", []string{"cli/command", "cli/exit", "cli/term", "config", "topofile", "tui"}, "texts about commands and about what they take"},
	{"cli/complete", slices.Concat(cliLeaves, []string{"client", "cluster", "statedir"}), "a leaf that asks the cluster"},
	{"cli/fleet", []string{"cli/exit", "cli/human", "cli/session", "client", "cluster"}, "what commands say of workers and nodes"},
	{"cli/frontend", []string{"cli/exit", "cli/human", "cli/session", "client", "openai"}, "finds frontends for verbs that talk with them"},
	{"cli/labflags", nil, "flags, for dynctl and for the laboratory, which it does not link"},
	{"cli/dynlab", []string{"cli/exit", "cli/launch", "cli/session"}, "runs the laboratory as a process, for verbs"},
	{"cli/whatif", []string{"cli/command", "cli/declare", "cli/dynlab", "cli/exit", "cli/human", "cli/session", "cli/settings", "cli/term", "client", "config", "mooncake", "topofile"}, "puts a cluster's load, profile and topologies before the laboratory"},
	{"cli/listing", []string{"cli/exit", "cli/human", "cli/output", "cli/session", "client", "cluster"}, "lists things of any kind"},
	{"cli/settings", []string{"cli/human", "cli/listing", "cli/output", "client", "cluster", "config"}, "settings at run time, for get and set"},
	{"cli/settle", []string{"cli/exit", "cli/fleet", "cli/human", "cli/output", "cli/progress", "client", "cluster"}, "waits for what was declared"},
	{"cli/declare", []string{"cli/command", "cli/exit", "cli/human", "cli/output", "cli/session", "client", "cluster", "topofile"}, "what verbs share that declare a topology"},
	{"cli/jointoken", []string{"cli/human", "cli/session", "client", "config", "credentials", "statedir"}, "tokens, for up and credentials"},
	{"cli/attach", slices.Concat(cliLeaves, []string{"client", "cluster"}), "a verb"},
	{"cli/bench", slices.Concat(cliLeaves, []string{"bench/...", "mooncake", "openai", "version"}), "a verb"},
	{"cli/cache", slices.Concat(cliLeaves, []string{"client", "cluster"}), "a verb"},
	{"cli/call", slices.Concat(cliLeaves, []string{"client", "cluster"}), "a verb"},
	{"cli/certs", slices.Concat(cliLeaves, []string{"certs"}), "a verb for this machine alone"},
	{"cli/chat", slices.Concat(cliLeaves, []string{"openai"}), "a verb"},
	{"cli/credentials", slices.Concat(cliLeaves, []string{"client", "config", "credentials", "ownerfile", "statedir"}), "a verb"},
	{"cli/doctor", slices.Concat(cliLeaves, []string{"certs", "cli/doctor/judge", "client", "cluster", "config", "host", "inspect", "openai", "protocol", "recall", "recall/drawn", "statedir", "version"}), "a verb that looks at everything"},
	{"cli/doctor/judge", []string{"cli/human", "client", "cluster", "host", "inspect", "openai"}, "pure: facts of these packages in, findings out"},
	{"cli/down", slices.Concat(cliLeaves, []string{"client", "cluster", "config", "statedir"}), "a verb"},
	{"cli/drain", slices.Concat(cliLeaves, []string{"client", "cluster"}), "a verb"},
	{"cli/events", slices.Concat(cliLeaves, []string{"client", "cluster"}), "a verb"},
	{"cli/explain", slices.Concat(cliLeaves, []string{"blockhash", "client", "cluster", "openai", "planner", "protocol"}), "a verb"},
	{"cli/get", slices.Concat(cliLeaves, []string{"client", "cluster", "mooncake", "profile", "protocol", "topofile"}), "a verb"},
	{"cli/logs", slices.Concat(cliLeaves, []string{"client", "cluster"}), "a verb"},
	{"cli/model", slices.Concat(cliLeaves, []string{"inspect"}), "a verb for this machine alone"},
	{"cli/profile", slices.Concat(cliLeaves, []string{"bench", "bench/workload", "client", "cluster", "openai", "profile", "profiler"}), "a verb"},
	{"cli/set", slices.Concat(cliLeaves, []string{"client", "cluster", "config"}), "a verb"},
	{"cli/plan", slices.Concat(cliLeaves, []string{"topofile"}), "a verb"},
	{"cli/simulate", cliLeaves, "a verb"},
	{"cli/top", slices.Concat(cliLeaves, []string{"client", "client/recording", "cluster", "tui"}), "a verb; the only one with a dashboard"},
	{"cli/topology", slices.Concat(cliLeaves, []string{"client", "cluster", "topofile"}), "a verb"},
	{"cli/up", slices.Concat(cliLeaves, []string{"chat/parse", "client", "cluster", "config", "inspect", "openai", "statedir", "topofile"}), "a verb"},
}

// cliVerbs are families of dynctl's verbs; no line of their rules names another one.
var cliVerbs = []string{
	"cli/attach", "cli/bench", "cli/cache", "cli/call", "cli/certs", "cli/chat", "cli/credentials", "cli/doctor", "cli/down", "cli/drain", "cli/events", "cli/explain", "cli/get", "cli/logs",
	"cli/model", "cli/plan", "cli/profile", "cli/set", "cli/simulate", "cli/top", "cli/topology", "cli/up",
}

// cliLeaves are what verbs share; their own rules keep verbs out of them.
var cliLeaves = []string{
	"cli/command", "cli/complete", "cli/declare", "cli/dynlab", "cli/exit", "cli/fleet", "cli/frontend", "cli/help", "cli/human", "cli/jointoken", "cli/labflags",
	"cli/launch", "cli/listing", "cli/output", "cli/progress", "cli/session", "cli/settings", "cli/settle", "cli/term", "cli/whatif",
}

// never lists what a package must not link: not itself, nor through others.
type never struct {
	pkg   string
	links []string
	why   string
}

// laboratory is what measures the product and what stands for parts of it in tests: fakes,
// and packages that only tests import.
var laboratory = []string{"lab/...", "nixl/cudaipc/fakedevice", "...test", "patience", "orphan"}

// computing are the parts that make dynamod large, or bind it to the system's C library.
// "model" is not among them: it reads files, which dynctl does too when it describes a model.
var computing = []string{
	"dynlib", "github.com/ebitengine/purego/...",
	"engine/...", "cuda/...", "worker/...", "agent/...", "embedded/...", "frontend/...",
	"go.etcd.io/etcd/server/v3/...", "github.com/nats-io/nats-server/v2/...",
}

var neverRules = []never{
	{"cmd/dynctl", slices.Concat(computing, laboratory), "dynctl stays small: it starts dynamod processes and talks to them"},
	{"cli/...", computing, "dynctl stays small: it starts dynamod processes and talks to them"},
	{"client/...", append([]string{"cli/...", "tui/...", "controller/...", "model/...", "inspect"}, computing...), "the client is what dynctl knows of a cluster"},
	{"dynamo", slices.Concat(computing, laboratory, []string{"agent/...", "cli/...", "client/...", "controller/...", "frontend/...", "tui/..."}), "a program that joins a cluster becomes no part of an agent"},
	{"tui/...", []string{"model/...", "inspect"}, "a dashboard shows clusters, not files"},
	{"cmd/dynamod", append(slices.Clone(laboratory), "cli/...", "tui/...", "client/...", "github.com/charmbracelet/..."), "an agent has no screen, and production carries no laboratory"},
	{"cmd/...", []string{"std:testing", "std:net/http/httptest"}, "test support would bring its flags into the programs"},
	{"engine", []string{"runtime/...", "store/...", "events/...", "requestplane/...", "frontend/...", "engine/cpu/...", "engine/gpu/...", "engine/mock/...", "cuda/...", "nixl/..."}, "the engine is told what to do and knows no network"},
	{"nixl/...", []string{"engine/...", "cuda/...", "router/...", "frontend/...", "runtime/...", "store/..."}, "the data path knows memory and peers only"},
	{"frontend/...", []string{"engine/...", "cuda/...", "nixl/...", "worker/...", "controller/...", "agent/...", "embedded/...", "client/...", "cli/...", "tui/..."}, "a frontend reaches workers over the request plane"},
	{"worker/...", []string{"frontend/...", "controller/...", "agent/...", "embedded/...", "client/...", "cli/...", "tui/...", "engine/cpu/...", "engine/gpu/...", "cuda/..."}, "a worker is given its engine and its runtime"},
	{"controller/...", []string{"engine/...", "cuda/...", "nixl/...", "worker/...", "frontend/...", "agent/...", "embedded/...", "client/...", "cli/...", "tui/..."}, "the controller writes assignments, agents carry them out"},
	{"agent/...", []string{"cli/...", "tui/...", "client/..."}, "an agent has no screen"},
}

// home says which packages may import a library directly: a third party's, or a part of this
// module that is not for everybody.
type home struct {
	library string // and all below it
	in      []string
	why     string
}

var homeRules = []home{
	{"lab", []string{"lab/...", "cmd/dynlab"}, "the laboratory stands on the product; of the product, only tests may use it"},
	{"go.etcd.io/etcd/server/v3", []string{"embedded"}, "the server"},
	{"github.com/nats-io/nats-server/v2", []string{"embedded"}, "the server"},
	{"go.etcd.io/etcd/client/v3", []string{"store/...", "embedded", "lab/bench"}, "the store hides etcd; embedded asks its own server whether it is ready; the store is measured beside it"},
	{"go.etcd.io/etcd/api/v3", []string{"store/...", "embedded"}, "the store hides etcd"},
	{"k8s.io/client-go", []string{"kube/access"}, "kubeconfigs and ways to log in, with the tag kubernetes"},
	{"google.golang.org/grpc", []string{"store/...", "embedded", "lab/bench"}, "etcd's transport; request planes are measured beside it"},
	{"go.uber.org/zap", []string{"store/...", "embedded"}, "etcd's logger, turned into slog"},
	{"github.com/nats-io/nats.go", []string{"events/...", "store", "natsconn", "embedded", "lab/bench"}, "the event plane and the store hide NATS; how to connect is in natsconn; planes are measured beside it"},
	{"github.com/ebitengine/purego", []string{"dynlib"}, "one build tag, nodl, takes it out of the programs"},
	{"github.com/hashicorp/yamux", []string{"requestplane/..."}, "multiplexing of one connection"},
	{"github.com/vmihailenco/msgpack/v5", []string{"protocol"}, "one encoding, in one place"},
	{"github.com/zeebo/xxh3", []string{"blockhash"}, "one hash, in one place"},
	{"golang.org/x/image", []string{"media/picture", "recall/drawn"}, "its decoders differ from Pillow's: one place mends that; drawn pictures have its fonts"},
	{"github.com/dlclark/regexp2", []string{"tokenizer/...", "model/..."}, "patterns of tokenizer files need look-ahead"},
	{"github.com/prometheus", []string{"metrics"}, "bundles hand out ready counters"},
	{"github.com/spf13/viper", []string{"config"}, "one place decides settings"},
	{"github.com/go-viper", []string{"config"}, "one place decides settings"},
	{"github.com/spf13/cobra", []string{"cli/...", "dynamod", "lab", "cmd/..."}, "commands"},
	{"github.com/spf13/pflag", []string{"config", "cli/...", "cmd/..."}, "flags are made from the table of settings"},
	{"go.yaml.in/yaml/v3", []string{"config", "topofile", "cli/...", "client/...", "tui/..."}, "configuration and topologies in, answers out"},
	{"github.com/charmbracelet/bubbletea", []string{"tui"}, "the frame of the dashboard: panes take no messages"},
	{"github.com/charmbracelet", []string{"tui/...", "cli/..."}, "styles of the dashboard and of answers"},
	{"github.com/muesli", []string{"tui/...", "cli/..."}, "what the terminal can do"},
	{"github.com/santhosh-tekuri/jsonschema", nil, "for tests only: it checks what grammars of schemas generate"},
	{"github.com/openai/openai-go", nil, "for tests only: it is the client that users have"},
	{"go.uber.org/goleak", nil, "for tests only"},
	{"github.com/rogpeppe/go-internal", nil, "for tests only"},
	{"github.com/stretchr/testify", nil, "not used: the standard library is enough"},
}
