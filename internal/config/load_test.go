package config_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// input builds an Input from flags, variables and files by path. HOME is set.
func input(t *testing.T, table config.Table, args, environ []string, files map[string]string) config.Input {
	t.Helper()
	flags := pflag.NewFlagSet(table.Program, pflag.ContinueOnError)
	table.AddFlags(flags, "")
	table.AddFlags(flags, "top")
	if err := flags.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return config.Input{
		Flags:   flags,
		Environ: append([]string{"HOME=/home/ann"}, environ...),
		ReadFile: func(path string) ([]byte, error) {
			if text, ok := files[path]; ok {
				return []byte(text), nil
			}
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		},
	}
}

func loadDynamod(t *testing.T, args, environ []string, files map[string]string) (config.Dynamod, *config.Origins, error) {
	t.Helper()
	return config.LoadDynamod(input(t, config.DynamodTable(), args, environ, files))
}

func TestDefaults(t *testing.T) {
	cfg, origins, err := loadDynamod(t, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Dynamod{
		Cluster: "local", Namespace: "dynamo", StateDir: "/home/ann/.local/state/dynctl",
		Node:         config.Node{Name: "node-1", AdvertiseHost: "127.0.0.1", Roles: []string{}, Taints: []string{}, ServerCommands: "auto"},
		Log:          config.Log{Level: "info", Format: "text"},
		Frontend:     config.Frontend{Enabled: true, Host: "127.0.0.1", Port: 8000, BodyLimit: 45 << 20, TrustedProxies: []string{}, CORSOrigins: []string{}, AllowedHosts: []string{}, RequestTimeout: 10 * time.Minute, WriteTimeout: 30 * time.Second, MigrationLimit: 3, RecordLoad: true},
		Status:       config.Status{Listener: config.Listener{Listen: "127.0.0.1:0"}},
		HealthCheck:  config.HealthCheck{Wait: 10 * time.Second, Timeout: 3 * time.Second},
		RequestPlane: config.RequestPlane{Listener: config.Listener{Listen: "127.0.0.1:0"}, Mode: config.PlaneTCP},
		NIXL:         config.NIXL{Listen: "127.0.0.1:0", Transports: []string{}, TCPStreams: 2},
		CPU:          config.CPU{ISA: "auto", Activations: "auto"},
		GPU:          config.GPU{Devices: "none", MemoryUtilization: 0.9, KVShare: 0.5},
		Engine:       config.Engine{KVDType: "auto"},
		Disagg:       config.Disagg{Strategy: "decode-first", OverlapKVTransfer: true, MaxLocalPrefillTokens: 64, MaxPrefillQueueDepth: 64, Conditional: "least-delay", RemotePrefillTimeout: 30 * time.Second},
		Router:       config.Router{Policy: "kv", SessionAffinity: "soft", SessionAffinityTTL: 10 * time.Minute, QueuePolicy: "fcfs", KVEvents: true, KVTTL: 2 * time.Minute, ReplicaSync: true},
		Rollout:      config.Rollout{MaxSurge: "25%", MaxUnavailable: "25%"},
		Planner: config.Planner{
			Mode: "advise", Connector: "topology", KubernetesPrefill: "statefulsets.apps/dynctl-prefill", KubernetesDecode: "statefulsets.apps/dynctl-decode", Goal: "sla", TTFT: 500 * time.Millisecond, ITL: 50 * time.Millisecond, Percentile: 95, DecodeMin: 1,
			Predictor: "auto", Interval: 5 * time.Second, ForecastInterval: 3 * time.Minute, CoolDown: time.Minute, Thresholds: true, ActionTimeout: 10 * time.Minute,
		},
		Drain:      config.Drain{Deadline: time.Minute},
		Multimodal: config.Multimodal{MaxFileSizeMB: 50, EmbeddingCacheMB: 256},
	}
	want.Discovery = config.Discovery{Backend: "etcd", Bucket: "dynctl"}
	want.Kubernetes = config.Kubernetes{KubernetesClient: config.KubernetesClient{Mode: "pod"}, PodInfo: "/etc/podinfo", LeaseTTL: 30 * time.Second}
	want.Etcd = config.Etcd{EtcdClient: config.EtcdClient{Endpoints: []string{}}, Mode: "auto", Listen: "127.0.0.1:2379", LeaseTTL: 10 * time.Second}
	want.NATS = config.NATS{Mode: "auto", Listen: "127.0.0.1:4222"}
	if !equal(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	if err := cfg.Validate(); err != nil {
		t.Errorf("defaults are refused: %v", err)
	}
	for _, v := range origins.All() {
		if v.Origin.Kind != config.FromDefault {
			t.Errorf("%s comes from %s, want default", v.Key, v.Origin)
		}
	}
}

func TestPrecedence(t *testing.T) {
	file := map[string]string{"dynamod.yaml": "frontend:\n  port: 1\n"}
	env := []string{"DYNAMOD_FRONTEND_PORT=2"}
	alias := []string{"DYN_HTTP_PORT=3"}
	flag := []string{"--frontend-port", "4"}
	for _, tc := range []struct {
		name   string
		args   []string
		env    []string
		files  map[string]string
		want   int
		origin string
	}{
		{"default", nil, nil, nil, 8000, "default"},
		{"file beats default", nil, nil, file, 1, "dynamod.yaml:2"},
		{"alias beats file", nil, alias, file, 3, "DYN_HTTP_PORT"},
		{"own variable beats alias", nil, slices.Concat(alias, env), file, 2, "DYNAMOD_FRONTEND_PORT"},
		{"flag beats all", flag, slices.Concat(alias, env), file, 4, "--frontend-port"},
		{"a flag with the default value still counts", []string{"--frontend-port=8000"}, env, file, 8000, "--frontend-port"},
		{"an empty variable counts as not set", nil, []string{"DYNAMOD_FRONTEND_PORT="}, file, 1, "dynamod.yaml:2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, origins, err := loadDynamod(t, tc.args, tc.env, tc.files)
			if err != nil {
				t.Fatal(err)
			}
			v, ok := origins.Of("frontend.port")
			if cfg.Frontend.Port != tc.want || !ok || v.Value != tc.want || v.Origin.String() != tc.origin {
				t.Errorf("port %d, listed as %v from %s; want %d from %s", cfg.Frontend.Port, v.Value, v.Origin, tc.want, tc.origin)
			}
		})
	}
}

func TestEveryKindFromEveryLayer(t *testing.T) {
	for _, tc := range []struct {
		key, text string
		get       func(config.Dynamod) any
		want      any
	}{
		{"cluster", "lab", func(d config.Dynamod) any { return d.Cluster }, "lab"},
		{"state_dir", "~/s", func(d config.Dynamod) any { return d.StateDir }, "/home/ann/s"},
		{"frontend.enabled", "false", func(d config.Dynamod) any { return d.Frontend.Enabled }, false},
		{"engine.kv_blocks", "4096", func(d config.Dynamod) any { return d.Engine.KVBlocks }, 4096},
		{"drain.deadline", "90s", func(d config.Dynamod) any { return d.Drain.Deadline }, 90 * time.Second},
		{"frontend.body_limit", "1GiB", func(d config.Dynamod) any { return d.Frontend.BodyLimit }, config.Size(1 << 30)},
		{"nixl.transports", "tcp,local", func(d config.Dynamod) any { return strings.Join(d.NIXL.Transports, "+") }, "tcp+local"},
		{"frontend.api_key", "k", func(d config.Dynamod) any { return d.Frontend.APIKey }, config.Secret("k")},
	} {
		key, _ := config.DynamodTable().Key(tc.key)
		layers := map[string]func() (config.Dynamod, *config.Origins, error){
			"file": func() (config.Dynamod, *config.Origins, error) {
				return loadDynamod(t, nil, nil, map[string]string{"dynamod.yaml": tc.key + ": " + tc.text})
			},
			"env": func() (config.Dynamod, *config.Origins, error) {
				return loadDynamod(t, nil, []string{config.DynamodTable().Env(key) + "=" + tc.text}, nil)
			},
		}
		if key.HasFlag() {
			layers["flag"] = func() (config.Dynamod, *config.Origins, error) {
				return loadDynamod(t, []string{"--" + key.FlagName() + "=" + tc.text}, nil, nil)
			}
		}
		for layer, load := range layers {
			t.Run(tc.key+"/"+layer, func(t *testing.T) {
				cfg, origins, err := load()
				if err != nil {
					t.Fatal(err)
				}
				if got := tc.get(cfg); got != tc.want {
					t.Errorf("got %v, want %v", got, tc.want)
				}
				if v, _ := origins.Of(tc.key); v.Origin.Kind.String() != layer || !origins.Set(tc.key) {
					t.Errorf("origin %s, want %s", v.Origin, layer)
				}
			})
		}
	}
}

func TestAliases(t *testing.T) {
	cfg, origins, err := loadDynamod(t, nil, []string{
		"ETCD_ENDPOINTS=http://a:2379, b:2379", "NATS_SERVER=nats://n:4222", "DYN_NAMESPACE=team",
		"ETCD_LEASE_TTL=20", "DYN_HTTP_BODY_LIMIT_MB=192", "DYNAMOD_FRONTEND_ENABLED=1",
		"DYN_ROUTER_CONDITIONAL_DISAGG=true",
		"DYN_HEALTH_CHECK_ENABLED=true", "DYN_CANARY_WAIT_TIME=20", "DYN_HEALTH_CHECK_REQUEST_TIMEOUT=1.5",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Etcd.Endpoints; !slices.Equal(got, []string{"http://a:2379", "b:2379"}) || !cfg.Etcd.External() {
		t.Errorf("etcd endpoints %q, external %v", got, cfg.Etcd.External())
	}
	if !cfg.NATS.External() || cfg.NATS.URL != "nats://n:4222" || cfg.Namespace != "team" || !cfg.Frontend.Enabled {
		t.Errorf("got %+v", cfg)
	}
	if got, err := cluster.ParseConditional(cfg.Disagg.Conditional); err != nil || got.Rule != cluster.ConditionalISLBounding {
		t.Errorf("conditional disaggregation %+v, %v", got, err)
	}
	if want := (config.HealthCheck{Enabled: true, Wait: 20 * time.Second, Timeout: 1500 * time.Millisecond}); cfg.HealthCheck != want {
		t.Errorf("health check %+v", cfg.HealthCheck)
	}
	// These two variables are defined as numbers of seconds and MiB.
	if cfg.Etcd.LeaseTTL != 20*time.Second || cfg.Frontend.BodyLimit != 192<<20 {
		t.Errorf("lease TTL %s, body limit %s", cfg.Etcd.LeaseTTL, cfg.Frontend.BodyLimit)
	}
	if err := origins.Locate(cfg.Validate()); err != nil {
		t.Error(err)
	}
	if _, _, err := loadDynamod(t, nil, []string{`DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG={"policy":"magic"}`}, nil); err == nil || !strings.Contains(err.Error(), `no rule "magic"`) {
		t.Errorf("an unknown rule: %v", err)
	}
	cfg, _, err = loadDynamod(t, []string{"--etcd-mode=embedded"}, []string{"ETCD_ENDPOINTS=a:2379"}, nil)
	if err != nil || cfg.Etcd.External() {
		t.Errorf("embedded with endpoints: external %v, error %v", cfg.Etcd.External(), err)
	}
}

func TestSearchOrder(t *testing.T) {
	const text = "cluster: "
	all := map[string]string{
		"dynamod.yaml":                          text + "cwd",
		"/home/ann/.config/dynctl/dynamod.yaml": text + "home",
		"/xdg/dynctl/dynamod.yaml":              text + "xdg",
		"/etc/dynctl/dynamod.yaml":              text + "etc",
		"/env.yaml":                             text + "env",
		"/flag.yaml":                            text + "flag",
	}
	without := func(paths ...string) map[string]string {
		files := map[string]string{}
		for p, c := range all {
			if !slices.Contains(paths, p) {
				files[p] = c
			}
		}
		return files
	}
	for _, tc := range []struct {
		name  string
		args  []string
		env   []string
		files map[string]string
		want  string
	}{
		{"working directory", nil, nil, all, "cwd"},
		{"home", nil, nil, without("dynamod.yaml"), "home"},
		{"xdg instead of home", nil, []string{"XDG_CONFIG_HOME=/xdg"}, without("dynamod.yaml"), "xdg"},
		{"a relative xdg is ignored", nil, []string{"XDG_CONFIG_HOME=xdg"}, without("dynamod.yaml"), "home"},
		{"etc", nil, nil, without("dynamod.yaml", "/home/ann/.config/dynctl/dynamod.yaml"), "etc"},
		{"variable", nil, []string{"DYNAMOD_CONFIG=/env.yaml"}, all, "env"},
		{"flag", []string{"--config=/flag.yaml"}, []string{"DYNAMOD_CONFIG=/env.yaml"}, all, "flag"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, _, err := loadDynamod(t, tc.args, tc.env, tc.files)
			if err != nil || cfg.Cluster != tc.want {
				t.Errorf("cluster %q, error %v; want %q", cfg.Cluster, err, tc.want)
			}
		})
	}
	_, _, err := loadDynamod(t, []string{"--config=/absent.yaml"}, nil, all)
	if !errors.Is(err, config.ErrNoFile) || !strings.Contains(err.Error(), `"/absent.yaml", named by --config`) {
		t.Errorf("named but absent: %v", err)
	}
	in := input(t, config.DynamodTable(), nil, nil, nil)
	in.ReadFile = func(path string) ([]byte, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	if _, _, err := config.LoadDynamod(in); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("unreadable file: %v", err)
	}
}

func TestDynctl(t *testing.T) {
	cfg, origins, err := config.LoadDynctl(input(t, config.DynctlTable(),
		[]string{"-o", "json", "--interval=2s", "--read-only", "--etcd-endpoints=a:1", "--etcd-endpoints=b:2"},
		[]string{"DYNCTL_TOP_ASCII=true", "DYNCTL_TOP_TEME=dark", "XDG_STATE_HOME=/var/state"},
		map[string]string{"dynctl.yaml": "color: never\ntop:\n  theme: mono\n"}))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Dynctl{
		Cluster: "local", Namespace: "dynamo", StateDir: "/var/state/dynctl",
		Output: "json", Color: "never", ReadOnly: true,
		Discovery:  config.Discovery{Backend: "etcd", Bucket: "dynctl"},
		Kubernetes: config.KubernetesClient{Mode: "pod"},
		Etcd:       config.EtcdClient{Endpoints: []string{"a:1", "b:2"}},
		Top:        config.Top{Interval: 2 * time.Second, Theme: "mono", ASCII: true},
	}
	if !equal(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if w := origins.Warnings(); len(w) != 1 || w[0] != "unknown variable DYNCTL_TOP_TEME has no effect; did you mean DYNCTL_TOP_THEME?" {
		t.Errorf("warnings %q", w)
	}
	if origins.File() != "dynctl.yaml" {
		t.Errorf("file %q", origins.File())
	}
}

// A choice that has another name now is understood in every layer, and its user is told.
func TestFormerNamesOfChoices(t *testing.T) {
	cfg, origins, err := loadDynamod(t, nil, []string{"DYNAMOD_NIXL_TRANSPORTS=pvm,tcp"},
		map[string]string{"dynamod.yaml": "nixl:\n  transports: [pvm]\n"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cfg.NIXL.Transports, ","); got != "cma,tcp" {
		t.Errorf("transports %s", got)
	}
	const note = ": the value pvm of nixl.transports is called cma now; the next release removes the old name"
	if w := origins.Warnings(); len(w) != 2 || w[0] != "dynamod.yaml:2"+note || w[1] != "DYNAMOD_NIXL_TRANSPORTS"+note {
		t.Errorf("warnings %q", w)
	}
}

// Choices may be written with underscores, as Dynamo does, wherever a value is read.
func TestChoicesWithUnderscores(t *testing.T) {
	for _, tc := range []struct{ given, want string }{
		{"round_robin", "round-robin"}, {"power_of_two", "power-of-two"}, {"least_loaded", "least-loaded"}, {"least-loaded", "least-loaded"}, {"kv", "kv"},
	} {
		for layer, load := range map[string]func() (config.Dynamod, *config.Origins, error){
			"alias": func() (config.Dynamod, *config.Origins, error) {
				return loadDynamod(t, nil, []string{"DYN_ROUTER_MODE=" + tc.given}, nil)
			},
			"variable": func() (config.Dynamod, *config.Origins, error) {
				return loadDynamod(t, nil, []string{"DYNAMOD_ROUTER_POLICY=" + tc.given}, nil)
			},
			"flag": func() (config.Dynamod, *config.Origins, error) {
				return loadDynamod(t, []string{"--router-policy", tc.given}, nil, nil)
			},
			"file": func() (config.Dynamod, *config.Origins, error) {
				return loadDynamod(t, nil, nil, map[string]string{"dynamod.yaml": "router:\n  policy: " + tc.given + "\n"})
			},
		} {
			cfg, origins, err := load()
			if err != nil || cfg.Router.Policy != tc.want || len(origins.Warnings()) > 0 {
				t.Errorf("%s by %s: %q %v %v", tc.given, layer, cfg.Router.Policy, err, origins)
			}
		}
		k, err := config.RuntimeKey("router.policy")
		if err != nil {
			t.Fatal(err)
		}
		if v, err := k.ParseRuntime(tc.given); err != nil || v != tc.want {
			t.Errorf("%s set: %v %v", tc.given, v, err)
		}
		if v, err := k.DecodeRuntime([]byte(`"` + tc.given + `"`)); err != nil || v != tc.want {
			t.Errorf("%s stored: %v %v", tc.given, v, err)
		}
	}
	if _, _, err := loadDynamod(t, nil, []string{"DYN_ROUTER_MODE=round robin"}, nil); err == nil || !strings.Contains(err.Error(), "round-robin") {
		t.Errorf("neither: %v", err)
	}
	if cfg, _, err := loadDynamod(t, []string{"--nixl-transports", "tcp", "--disagg-strategy", "prefill_first"}, nil, nil); err != nil || cfg.Disagg.Strategy != "prefill-first" {
		t.Errorf("another setting: %q %v", cfg.Disagg.Strategy, err)
	}
}

func TestWrongValuesNameTheirOrigin(t *testing.T) {
	_, _, err := loadDynamod(t, nil,
		[]string{"DYN_HTTP_PORT=http", "DYNAMOD_DRAIN_DEADLINE=30"},
		map[string]string{"dynamod.yaml": "engine:\n  kv_blocks: many\n"})
	var problems config.Problems
	if !errors.As(err, &problems) || len(problems) != 3 {
		t.Fatalf("got %v", err)
	}
	want := strings.TrimSpace(`
dynamod.yaml:2: engine.kv_blocks: "many" is not a whole number from 0 to 1000000000
DYN_HTTP_PORT: frontend.port: "http" is not a whole number from 0 to 65535
DYNAMOD_DRAIN_DEADLINE: drain.deadline: "30" has no unit: expected a duration with a unit, like 30s or 5m`)
	if got := err.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWrongFlagIsAUsageError(t *testing.T) {
	for args, want := range map[string]string{
		"--engine-kv-blocks=many": `"many" is not a whole number`,
		"--frontend-port=70000":   "70000 is not a whole number from 0 to 65535",
		"--drain-deadline=30":     "has no unit",
		"--log-format=xml":        `"xml" is not one of text, json`,
		"--etcd-password=x":       "unknown flag", // secrets stay out of process listings
	} {
		flags := pflag.NewFlagSet("dynamod", pflag.ContinueOnError)
		config.DynamodTable().AddFlags(flags, "")
		if err := flags.Parse([]string{args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}
