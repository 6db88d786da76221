package config

import (
	"fmt"
	"slices"
	"strings"
)

// routerPrefix begins Dynamo's variables of the router.
const routerPrefix = "DYN_ROUTER_"

// only are values of Dynamo's variables that say what dynamod does anyway. Others are not
// supported.
var only = map[string][]string{
	"DYN_KEY_VALUE_STORE": {"etcd"}, "DYN_EVENT_PLANE": {"nats"},
}

// unused are Dynamo's variables that choose or tune what dynamod has no setting for, by the
// reason that their users are told.
var unused = map[string][]string{
	"policy kv has no weights to tune": {
		"DYN_KV_OVERLAP_SCORE_WEIGHT", "DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT", "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT", "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY",
		"DYN_ROUTER_PREFILL_LOAD_SCALE", "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT", "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT", "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT",
		"DYN_ROUTER_TEMPERATURE",
	},
	"there are no caches that workers share": {"DYN_SHARED_CACHE_TYPE", "DYN_SHARED_CACHE_MULTIPLIER"},
	"policy kv always weighs the prompts and blocks in flight at a worker": {
		"DYN_ROUTER_TRACK_ACTIVE_BLOCKS", "DYN_ROUTER_TRACK_OUTPUT_BLOCKS", "DYN_ROUTER_TRACK_PREFILL_TOKENS", "DYN_ROUTER_ASSUME_KV_REUSE",
		"DYN_ROUTER_PREFILL_LOAD_MODEL", "DYN_ROUTER_PREDICTED_TTL_SECS", "DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS",
	},
	"router.policy: least-loaded weighs load alone": {"DYN_ROUTER_LOAD_AWARE"},
	"each frontend indexes for itself": {
		"DYN_USE_REMOTE_INDEXER", "DYN_SERVE_INDEXER", "DYN_ROUTER_EVENT_THREADS", "DYN_ROUTER_SNAPSHOT_THRESHOLD", "DYN_ROUTER_RESET_STATES",
	},
	"the prefix index has a fixed bound in bytes":                                 {"DYN_ROUTER_MAX_TREE_SIZE", "DYN_ROUTER_PRUNE_TARGET_RATIO"},
	"a frontend holds back what exceeds twice engine.max_num_seqs of the workers": {"DYN_ROUTER_QUEUE_THRESHOLD"},
	"a frontend serves as soon as there is a worker":                              {"DYN_ROUTER_MIN_INITIAL_WORKERS"},

	"discovery.backend says where workers are found":                            {"DYN_KEY_VALUE_STORE"},
	"request_plane.listen says where requests are served, at /v1/rpc over HTTP": {"DYN_HTTP_RPC_HOST", "DYN_HTTP_RPC_PORT", "DYN_HTTP_RPC_ROOT_PATH", "DYN_TCP_RPC_HOST", "DYN_TCP_RPC_PORT"},
	"events go over NATS (nats.url)":                                            {"DYN_EVENT_PLANE", "DYN_EVENT_PLANE_CODEC", "DYN_ZMQ_BROKER_URL", "DYN_ZMQ_BROKER_ENABLED", "DYN_ZMQ_EVENT_SUBSCRIBER_CHANNEL_CAPACITY", "DYN_NATS_STREAM_MAX_AGE"},
	"certificates are always verified":                                          {"NATS_TLS_INSECURE"},
	"request_plane.tls encrypts requests, and the cluster's secret takes the place of certificates": {
		"DYN_TCP_TLS_CERT_PATH", "DYN_TCP_TLS_KEY_PATH", "DYN_TCP_TLS_CA_CERT_PATH", "DYN_TCP_TLS_INSECURE", "DYN_TCP_TLS_SERVER_NAME", "DYN_TCP_TLS_HANDSHAKE_TIMEOUT_SECS",
	},
	"encode workers compute on CPUs":                                                       {"DYN_ENCODER_CUDA_TO_CPU_RATIO"},
	"KV caches have no host or disk tier":                                                  {"DYN_KVBM_CPU_CACHE_GB", "DYN_KVBM_CPU_CACHE_OVERRIDE_NUM_BLOCKS", "DYN_KVBM_DISK_CACHE_GB", "DYN_KVBM_DISK_CACHE_OVERRIDE_NUM_BLOCKS", "DYN_KVBM_DISK_CACHE_DIR"},
	"the built-in engine has no adapters (LoRA), and servers of other engines tell theirs": {"DYN_LORA_ENABLED", "DYN_LORA_PATH"},
	"the status server always runs (status.listen)":                                        {"DYN_SYSTEM_ENABLED", "DYN_SYSTEM_HOST", "DYN_SYSTEM_PORT"},
	"the status server answers at /health and /live":                                       {"DYN_SYSTEM_HEALTH_PATH", "DYN_SYSTEM_LIVE_PATH"},
	"a node is ready once it has joined; a worker is registered when it can answer":        {"DYN_SYSTEM_STARTING_HEALTH_STATUS"},
	"/health counts every endpoint of the node's workers":                                  {"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS"},
	"health_check.enabled probes workers with one token of their model":                    {"DYN_HEALTH_CHECK_PAYLOAD"},
	"log.level and log.format say how the log looks": {
		"DYN_LOG", "DYN_LOGGING_JSONL", "DYN_LOGGING_CONFIG_PATH", "DYN_LOGGING_CONSOLE_FORMAT", "DYN_LOGGING_SPAN_EVENTS", "DYN_LOG_USE_LOCAL_TZ", "DYN_SDK_DISABLE_ANSI_LOGGING",
	},
	"traces are not exported": {"OTEL_EXPORT_ENABLED"},

	"cpu.cores and GOMAXPROCS say how many threads compute": {
		"DYN_RUNTIME_NUM_WORKER_THREADS", "DYN_RUNTIME_MAX_BLOCKING_THREADS", "DYN_COMPUTE_THREADS", "DYN_COMPUTE_STACK_SIZE", "DYN_COMPUTE_THREAD_PREFIX", "DYN_ENABLE_POLL_HISTOGRAM",
	},
	"an instance that failed gets no requests for 5 s":                                {"DYN_RUNTIME_INHIBITED_DURATION_SECS"},
	"namespace (DYN_NAMESPACE) is the whole name":                                     {"DYN_NAMESPACE_WORKER_SUFFIX", "DYN_NAMESPACE_PREFIX"},
	"workers are registered by the names of their roles":                              {"DYN_COMPONENT", "DYN_ENDPOINT", "DYN_ENDPOINT_TYPES"},
	"frontends get the files of a model from its workers":                             {"DYN_SELF_HOST_METADATA"},
	"bodies of requests are msgpack; over HTTP callers may send JSON":                 {"DYN_REQUEST_PLANE_CODEC"},
	"engine.max_num_seqs says how many requests a worker works on":                    {"DYN_ENGINE_REQUEST_LIMIT", "DYN_DYNAMO_REQUEST_QUEUE_LIMIT", "DYN_TCP_WORKER_POOL_SIZE", "DYN_TCP_WORK_QUEUE_SIZE"},
	"answers come over the connection of their requests":                              {"DYN_TCP_RESPONSE_STREAM_HOST", "DYN_TCP_RESPONSE_STREAM_PORT"},
	"a frontend whose workers are busy answers 429":                                   {"DYN_HTTP_OVERLOAD_STATUS_CODE"},
	"administrative routes of a frontend need its API key, or come from this machine": {"DYN_DISABLE_FRONTEND_ADMIN_API"},
	"frontend.request_timeout limits a request":                                       {"DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS"},
	"names of metrics are fixed":                                                      {"DYN_METRICS_PREFIX"},
	"the limit of open files is raised as far as the system allows":                   {"DYN_FRONTEND_FD_LIMIT_TARGET"},
	"drain.deadline limits a graceful stop": {
		"DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS", "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS", "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT",
		"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS", "DYN_PREFILL_DRAIN_TIMEOUT_S",
	},
	"connections of the request plane and their buffers have fixed limits": {
		"DYN_TCP_CHANNEL_BUFFER", "DYN_TCP_CONNECT_TIMEOUT", "DYN_TCP_GLOBAL_CONNECT_LIMIT", "DYN_TCP_HOST_IDLE_TTL_SECS", "DYN_TCP_MAX_MESSAGE_SIZE", "DYN_TCP_POOL_SIZE",
		"DYN_TCP_REQUEST_TIMEOUT", "DYN_TCP_SHRINK_MESSAGE_SIZE",
	},
}

// unusedVariables warns of variables that Dynamo reads and dynamod does not.
func (t Table) unusedVariables(env map[string]string) []string {
	if !slices.ContainsFunc(t.Keys, func(k Key) bool { return k.Section() == "router" }) {
		return nil
	}
	why := map[string]string{}
	for reason, names := range unused {
		for _, name := range names {
			why[name] = reason
		}
	}
	known := map[string]bool{}
	for _, k := range t.Keys {
		for _, v := range t.variables(k) {
			known[v.Name] = true
		}
	}
	var warnings []string
	for name, value := range env {
		switch reason, listed := why[name]; {
		case known[name], slices.Contains(only[name], strings.ToLower(strings.TrimSpace(value))):
		case listed && only[name] != nil:
			warnings = append(warnings, fmt.Sprintf("%s=%s is not supported: %s", name, value, reason))
		case listed:
			warnings = append(warnings, fmt.Sprintf("%s is not used: %s", name, reason))
		case strings.HasPrefix(name, routerPrefix):
			warnings = append(warnings, fmt.Sprintf("%s is not used: %s has no such setting", name, t.Program))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// unusedLogins warns of credentials for NATS that are not used because of others.
func unusedLogins(o *Origins) (warnings []string) {
	used := ""
	for _, key := range []string{"nats.username", "nats.token", "nats.nkey", "nats.creds_file"} {
		v, ok := o.Of(key)
		switch {
		case !ok || v.Text() == "":
		case used == "":
			used = key
		default:
			warnings = append(warnings, fmt.Sprintf("%s: %s is not used: %s is", v.Origin, key, used))
		}
	}
	return warnings
}
