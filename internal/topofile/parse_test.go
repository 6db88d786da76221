package topofile

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func mustParse(t *testing.T, content string) File {
	t.Helper()
	f, err := Parse(Source{Name: "t.yaml"}, []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParse(t *testing.T) {
	f, err := Parse(Source{Name: "t.yaml", Dir: "/lab", Home: "/home/me"}, []byte(`
namespace: eu.west
model: {path: models/qwen.gguf, quantize: q8_0}
placement: pack
engine:
  backend: cpu
  devices: [cpu:0, cpu:1]
  kv_blocks: 100
  itl_target: 150ms
prefill: 2
decode:
  workers: 4
  placement: spread
  engine: {max_num_seqs: 8, devices: "cpu:1", speculative: ngram:3}
encode:
  workers: 3
  quantize: none
  engine: {backend: mock, devices: [cpu]}
disagg:
  strategy: prefill-first
  overlap_kv_transfer: false
  max_local_prefill_tokens: 0
`))
	if err != nil {
		t.Fatal(err)
	}
	want := File{Namespace: "eu.west", Revision: cluster.Revision{
		Topology: cluster.Topology{
			Model: cluster.ModelSpec{Name: "qwen", Path: "/lab/models/qwen.gguf", Quantize: "q8_0"}, Prefill: 2, Decode: 4, Encode: 3, Placement: "pack",
			Engine: cluster.EngineSpec{Backend: "cpu", Device: "cpu:0,cpu:1", KVBlocks: 100, ITLTargetMS: 150},
			DecodeSpec: cluster.RoleSpec{Placement: "spread", Engine: cluster.EngineSpec{
				MaxSeqs: 8, Device: "cpu:1", Speculative: cluster.Speculative{Method: "ngram", Tokens: 3},
			}},
			EncodeSpec: cluster.RoleSpec{Quantize: cluster.QuantizeNone, Engine: cluster.EngineSpec{Backend: "mock", Device: "cpu"}},
		},
		Settings: map[string]json.RawMessage{
			"disagg.strategy": json.RawMessage(`"prefill-first"`), "disagg.overlap_kv_transfer": json.RawMessage("false"), "disagg.max_local_prefill_tokens": json.RawMessage("0"),
		},
	}}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
}

func TestParsePaths(t *testing.T) {
	for path, want := range map[string]string{"~/m": "/home/me/m", "m": "/lab/m", "../m": "/m", "/m": "/m"} {
		f, err := Parse(Source{Dir: "/lab", Home: "/home/me"}, []byte("decode: 1\nmodel: {path: "+path+"}"))
		if err != nil || f.Topology.Model.Path != want || f.Topology.Model.Name != "m" {
			t.Errorf("%s is %+v %v, want %s", path, f.Topology.Model, err, want)
		}
	}
	tiny, eye := cluster.ModelSpec{Name: cluster.BuiltinModelName}, cluster.ModelSpec{Name: cluster.BuiltinVisionName, Path: cluster.BuiltinVisionName}
	for file, want := range map[string]cluster.ModelSpec{
		"decode: 1":                                                 tiny,
		"decode: 1\nencode: 0":                                      tiny,
		"decode: 1\nencode: 1":                                      eye, // a model that sees images
		"decode: 1\nmodel: {path: dynctl-tiny}":                     tiny,
		"decode: 1\nmodel: {path: dynctl-tiny-vision}":              eye,
		"decode: 1\nmodel: {name: m, path: dynctl-tiny-vision}":     {Name: "m", Path: cluster.BuiltinVisionName},
		"decode: 1\nencode: 1\nmodel: {name: m}":                    {Name: "m", Path: cluster.BuiltinVisionName},
		"decode: 1\nencode: 1\nmodel: {path: ./dynctl-tiny-vision}": {Name: cluster.BuiltinVisionName, Path: "/lab/dynctl-tiny-vision"},
	} {
		if f, err := Parse(Source{Dir: "/lab"}, []byte(file)); err != nil || f.Topology.Model != want {
			t.Errorf("%q is %+v %v, want %+v", file, f.Topology.Model, err, want)
		}
	}
}

// Everything that is wrong is said at once, with its place and what is expected.
func TestParseProblems(t *testing.T) {
	for _, tc := range []struct{ name, file, want string }{
		{"empty", "", "t.yaml: the file is empty; the shortest topology is: decode: 1"},
		{"no yaml", "a: [", "t.yaml:1: not valid YAML: did not find expected node content"},
		{"no mapping", "- 1", `t.yaml:1:1: a list is not a section; expected one of the keys namespace, model, placement, engine, prefill, decode, encode, pools, attached, frontend, disagg, router, rollout, planner`},
		{"two documents", "decode: 1\n---\ndecode: 2", "t.yaml:2:1: a second document starts here; use one file for each namespace"},
		{"unknown key", "decode: 1\nengin: {}", "t.yaml:2:1: engin: unknown key; did you mean engine?; expected one of namespace, model, placement, engine, prefill, decode, encode, pools, attached, frontend, disagg, router, rollout, planner"},
		{"key of a section", "decode: 1\nkv_blocks: 3", "t.yaml:2:1: kv_blocks: unknown key; kv_blocks belongs to engine; expected one of namespace, model, placement, engine, prefill, decode, encode, pools, attached, frontend, disagg, router, rollout, planner"},
		{"unknown in a section", "decode: 1\nrouter:\n  polcy: x", "t.yaml:3:3: router.polcy: unknown key; did you mean policy?; expected one of policy, active_decode_blocks_threshold, active_prefill_tokens_threshold, active_prefill_tokens_threshold_frac, session_affinity, session_affinity_ttl, queue_policy"},
		{"twice", "decode: 1\ndecode: 2", "t.yaml:2:1: decode: set twice; first in line 1"},
		{"short and long", "decode: 1\nprefill:\n  workers: x", `t.yaml:3:12: prefill.workers: "x" is not a whole number from 0 to 1024`},
		{"no value", "decode: 1\nplacement:", "t.yaml:2:11: placement: has no value; expected one of spread, pack"},
		{"a list", "decode: 1\nplacement: [pack]", "t.yaml:2:12: placement: a list is not one of spread, pack"},
		{"alias", "decode: &n 1\nprefill: *n", "t.yaml:2:10: prefill: the alias *n is not a section; expected one of the keys workers, placement, quantize, engine"},
		{"a backend without its devices", "decode: 1\nengine: {backend: cuda, devices: cpu}", "t.yaml:2:34: engine.devices: the backend cuda computes on gpu devices only, and cpu is none"},
		{"block size", "decode: 1\nengine: {block_size: 48}", "t.yaml:2:22: engine.block_size: 48 is not one of 16, 32, 64, 128"},
		{"no unit", "decode: 1\nengine: {itl_target: 200}", `t.yaml:2:22: engine.itl_target: "200" has no unit: expected a duration with a unit, like 30s or 5m`},
		{"part of a millisecond", "decode: 1\nengine: {itl_target: 1.5ms}", `t.yaml:2:22: engine.itl_target: 1.5ms is not a number of whole milliseconds`},
		{"speculation", "decode: 1\nengine: {speculative: eagle}", `t.yaml:2:23: engine.speculative: "eagle" is not off or ngram`},
		{"devices", "decode: 1\nengine: {devices: [CPU]}", `t.yaml:2:19: engine.devices: "CPU" is not the name of a device, like cpu or cpu:0`},
		{"empty device", "decode: 1\nengine: {devices: [cpu, '']}", `t.yaml:2:19: engine.devices: an empty value in a list; expected a list, or text with commas`},
		{"zero timeout", "decode: 1\ndisagg: {remote_prefill_timeout: 0}", "t.yaml:2:34: disagg.remote_prefill_timeout: 0 would never wait; expected a duration like 30s"},
		{"namespace", "decode: 1\nnamespace: Über", "t.yaml:2:12: namespace: use lower-case letters, digits, - and _, joined by dots"},
		{"encode alone", "encode: 2", "t.yaml: decode.workers: encode workers need at least one decode worker"},
		{"too many encode workers", "decode: 1\nencode: 2000", "t.yaml:2:9: encode.workers: 2000 is not a whole number from 0 to 1024"},
		{"KV of encode workers", "decode: 1\nencode: {workers: 1, engine: {kv_blocks: 5}}", "t.yaml:2:31: encode.engine.kv_blocks: unknown key; encode workers have no such option: they compute only the embeddings of images; expected one of backend, devices, server"},
		{"a mistake below encode", "decode: 1\nencode: {engine: {device: cpu}}", "t.yaml:2:19: encode.engine.device: unknown key; did you mean devices?; expected one of backend, devices, server"},
		{"encode workers of a model of text", "decode: 1\nencode: 1\nmodel: {name: dynctl-tiny}", "t.yaml:2:9: encode.workers: the built-in model dynctl-tiny sees no images; dynctl-tiny-vision does"},
		{"encode workers of a path of text", "decode: 1\nencode: {workers: 1}\nmodel: {name: m, path: dynctl-tiny}", "t.yaml:2:19: encode.workers: the built-in model dynctl-tiny sees no images; dynctl-tiny-vision does"},
		{"prefill alone", "prefill: 1", "t.yaml: decode.workers: prefill workers need at least one decode worker"},
		{"roles disagree", "prefill: 1\ndecode:\n  workers: 1\n  engine:\n    kv_cache_dtype: int8", "t.yaml:5:21: decode.engine.kv_cache_dtype: prefill and decode workers exchange KV blocks and must agree: prefill has the default, decode int8; set it for both in one place"},
		{"weights disagree", "prefill: {workers: 1, quantize: q4_0}\ndecode: 1", "t.yaml:1:33: prefill.quantize: prefill and decode workers exchange KV blocks and must agree: prefill has q4_0, decode the default; set it for both in one place"},
		{"a server without a name", "decode: 1\nengine: {backend: vllm, server: {command: x}}", "t.yaml: model.name: no name"},
		{"a server of our own", "decode: 1\nengine: {server: {command: x}}", "t.yaml:2:1: engine.backend: a server is described, which only the engines vllm, sglang, trtllm, openai have"},
		{"a secret", "decode: 1\nmodel: {name: m}\nengine: {backend: vllm, server: {command: x, env: {HF_TOKEN: hf_1234}}}", "t.yaml:3:51: engine.server.env: HF_TOKEN looks like a secret, which everybody who reads the topology would see: put it into a file of the node (api_key_file for the key of the server; HF_TOKEN_PATH for that of Hugging Face)"},
		{"words of a list", "decode: 1\nengine: {server: {command: [a, [b]]}}", "t.yaml:2:28: engine.server.command: a list in it; expected text"},
		{"a server of encode workers", "decode: 1\nencode: {engine: {server: {url: x}}}", "t.yaml:2:33: encode.engine.server.url: not the address of a server, like http://gpu-3:8001 (a key goes into api_key_file)"},
		{"an option of ours", "decode: {workers: 1, engine: {backend: vllm, kv_blocks: 5, server: {command: x}}}\nmodel: {name: m}", "t.yaml:1:57: decode.engine.kv_blocks: a server of vllm has its own option for it, which belongs into server.command"},
		{"a pool's name", "decode: 1\npools: {A: {decode: 1}}", `t.yaml:2:9: pools: "A" is not the name of a pool: lower-case letters, digits and -, at most 63`},
		{"no pool", "decode: 1\npools: 5", `t.yaml:2:8: pools: "5" is not a section; expected one of the keys the names of pools`},
		{"unknown in a pool", "decode: 1\npools: {a: {decod: 1}}", "t.yaml:2:13: pools.a.decod: unknown key; did you mean decode?; expected one of model, placement, engine, prefill, decode, encode, planner"},
		{"a setting of a pool", "decode: 1\npools: {a: {disagg: {strategy: x}}}", "t.yaml:2:13: pools.a.disagg: unknown key; expected one of model, placement, engine, prefill, decode, encode, planner"},
		{"what a pool lacks", "decode: 1\npools: {a: {model: {name: a}, prefill: 1}}", "t.yaml:2:9: pools.a.decode.workers: prefill workers need at least one decode worker"},
		{"a role of a pool", "decode: 1\npools: {a: {decode: many}}", `t.yaml:2:21: pools.a.decode.workers: "many" is not a whole number from 0 to 1024`},
		{"images of a pool", "decode: 1\npools: {a: {decode: 1, encode: 1, model: {name: dynctl-tiny}}}", "t.yaml:2:32: pools.a.encode.workers: the built-in model dynctl-tiny sees no images; dynctl-tiny-vision does"},
		{"a vision of a pool", "decode: 1\npools: {a: {decode: 1, encode: {engine: {kv_blocks: 1}}}}", "t.yaml:2:42: pools.a.encode.engine.kv_blocks: unknown key; encode workers have no such option: they compute only the embeddings of images; expected one of backend, devices, server"},
		{"attached is no list", "decode: 1\nattached: {url: x}", "t.yaml:2:11: attached: a mapping is not a list of servers, each with url, engine, role and model"},
		{"attached without url", "decode: 1\nattached: [{engine: vllm}]", "t.yaml:2:12: attached: a mapping is not a server with a url"},
		{"attached twice", "decode: 1\nattached: [{url: 'http://a:1', engine: vllm, role: decode, model: m}, {url: 'http://a:1'}]", "t.yaml:2:71: attached.http://a:1: this server is there twice"},
		{"attached unknown", "decode: 1\nattached: [{url: 'http://a:1', engine: vllm, rol: decode, model: m, role: decode}]", "t.yaml:2:46: attached.http://a:1: unknown key rol; did you mean role?; expected one of url, engine, role, model, path, node, served_model, connector, host, bootstrap_port, kv_events, kv_replay, api_key_file, ca_file, pair"},
		{"attached set twice", "decode: 1\nattached: [{url: 'http://a:1', engine: vllm, model: m, role: decode, role: prefill}]", "t.yaml:2:70: attached.http://a:1: role is set twice"},
		{"attached role", "decode: 1\nattached: [{url: 'http://a:1', engine: vllm, role: cook, model: m}]", `t.yaml:2:52: attached.http://a:1.role: "cook" is not one of prefill, decode, encode`},
		{"attached engine", "decode: 1\nattached: [{url: 'http://a:1', engine: cpu, role: decode, model: m}]", `t.yaml:2:40: attached.http://a:1.engine: "cpu" is not one of vllm, sglang, trtllm, openai`},
		{"attached prefill", "decode: 1\nattached: [{url: 'http://a:1', engine: openai, role: prefill, model: m}]", "t.yaml:2:40: attached.http://a:1.engine: servers of openai exchange no KV blocks, so that they cannot be prefill workers"},
		{"attached nowhere", "decode: 1\nattached: [{url: 'a:1', engine: openai, role: decode, model: m}]", "t.yaml:2:12: attached.a:1.url: not the address of a server, like http://gpu-3:8001 (a key goes into api_key_file)"},
		{"all at once", "decode: x\nprefill: 1\nplacement: tight\nfoo: 1\nengine: {kv_blocks: -1}",
			`t.yaml:1:9: decode.workers: "x" is not a whole number from 0 to 1024
t.yaml:3:12: placement: "tight" is not one of spread, pack
t.yaml:4:1: foo: unknown key; expected one of namespace, model, placement, engine, prefill, decode, encode, pools, attached, frontend, disagg, router, rollout, planner
t.yaml:5:21: engine.kv_blocks: -1 is not a whole number from 0 to 1000000000`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse(Source{Name: "t.yaml"}, []byte(tc.file))
			var ps Problems
			if !errors.As(err, &ps) || err.Error() != tc.want {
				t.Errorf("got\n%v\nwant\n%s", err, tc.want)
			}
		})
	}
	if _, err := Parse(Source{}, make([]byte, MaxBytes+1)); err == nil || !strings.Contains(err.Error(), "limit is 1MiB") {
		t.Errorf("a large file: %v", err)
	}
}

// A server of another engine: command and environment may be written in several ways, a role
// overrides single fields.
func TestParseServers(t *testing.T) {
	want := cluster.External{Command: "vllm serve '/m 1'", Env: "A=x y\nB=2", Connector: "nixl", KeyFile: "/lab/key"}
	for _, server := range []string{
		"{command: vllm serve '/m 1', env: {B: 2, A: x y}, connector: nixl, api_key_file: key}",
		"{command: [vllm, serve, /m 1], env: [B=2, A=x y], connector: nixl, api_key_file: /lab/key}",
		`{command: "vllm serve '/m 1'", env: "B=2 'A=x y'", connector: nixl, api_key_file: key}`,
	} {
		f, err := Parse(Source{Name: "t.yaml", Dir: "/lab"}, []byte("model: {name: m}\nengine:\n  backend: vllm\n  server: "+server+"\nprefill: {workers: 1, engine: {server: {port: 8100, env: {A: 1}}}}\ndecode: 2\n"))
		if err != nil {
			t.Fatal(err)
		}
		if f.Topology.Engine.Server != want {
			t.Errorf("%s is %+v", server, f.Topology.Engine.Server)
		}
		prefill := want
		prefill.Port, prefill.Env = 8100, "A=1"
		if _, got := f.Topology.Specs(cluster.RolePrefill); got.Server != prefill || got.Backend != "vllm" {
			t.Errorf("prefill workers have %+v", got)
		}
		written := render(t, f)
		if again := mustParse(t, written); !reflect.DeepEqual(again, f) || !strings.Contains(written, "      A: x y\n      B: \"2\"\n") {
			t.Errorf("it is written\n%s", written)
		}
		change := Diff(File{}, f)
		if got, _ := json.Marshal(change); !strings.Contains(string(got), `{"field":"engine.server.env","from":null,"to":"'A=x y' B=2"}`) {
			t.Errorf("differences %s", got)
		}
	}
	if f := mustParse(t, "decode: 1\nmodel: {name: m}\nengine: {backend: openai, server: {url: 'http://a:1'}}"); f.Topology.Model.Path != "" {
		t.Errorf("%+v", f.Topology.Model)
	}
}

const mixedFile = `
model: {name: m, path: /m}
decode: 2
pools:
  small:
    decode: 1
  servers:
    model: {name: m, path: /m}
    engine:
      backend: vllm
      server: {command: vllm serve /m, env: {A: 1}}
    prefill: 1
    decode: {workers: 2, engine: {max_seqs: 0, server: {port: 8100}}}
attached:
  - {url: "http://gpu-3.lab:8001", engine: vllm, role: decode, model: big, kv_events: "tcp://gpu-3.lab:5557"}
  - url: http://gpu-4.lab:8001
    engine: vllm
    role: prefill
    model: big
    path: /tok
    node: node-2
`

// Pools and attached servers are read and written, and differ field by field.
func TestParsePools(t *testing.T) {
	f := mustParse(t, strings.Replace(mixedFile, "model: big, kv", "model: big, path: /tok, kv", 1))
	big := cluster.ModelSpec{Name: "big"}
	vllm := func(x cluster.External) cluster.EngineSpec {
		return cluster.EngineSpec{Backend: cluster.BackendVLLM, Server: x}
	}
	want := cluster.Topology{
		Model: cluster.ModelSpec{Name: "m", Path: "/m"}, Decode: 2,
		Pools: map[string]cluster.Pool{
			"small": {Model: cluster.ModelSpec{Name: cluster.BuiltinModelName}, Decode: 1},
			"servers": {
				Model: cluster.ModelSpec{Name: "m", Path: "/m"}, Prefill: 1, Decode: 2, Engine: vllm(cluster.External{Command: "vllm serve /m", Env: "A=1"}),
				DecodeSpec: cluster.RoleSpec{Engine: cluster.EngineSpec{Server: cluster.External{Port: 8100}}},
			},
		},
		Attached: []cluster.Attached{
			{Model: big, Role: cluster.RoleDecode, Engine: vllm(cluster.External{URL: "http://gpu-3.lab:8001", Events: "tcp://gpu-3.lab:5557"})},
			{Model: cluster.ModelSpec{Name: "big", Path: "/tok"}, Role: cluster.RolePrefill, Node: "node-2", Engine: vllm(cluster.External{URL: "http://gpu-4.lab:8001"})},
		},
	}
	want.Attached[0].Model.Path = "/tok"
	if _, err := Parse(Source{}, []byte(mixedFile)); err == nil || !strings.Contains(err.Error(), "attached.http://gpu-4.lab:8001.model: big is what") {
		t.Errorf("two paths: %v", err)
	}
	if !f.Topology.Equal(want) {
		t.Errorf("got  %+v\nwant %+v", f.Topology, want)
	}
	written := render(t, f)
	again := mustParse(t, written)
	if !again.Topology.Equal(f.Topology) {
		t.Errorf("written\n%s\nand read %+v", written, again.Topology)
	}
	next := f.Clone()
	for _, set := range []string{"pools.small.decode=3", "pools.small.model.path=dynctl-tiny-vision", "pools.new.decode=1", "attached.http://gpu-3.lab:8001.kv_events=", "pools.servers.engine.max_seqs=4", "attached.http://x:1.role=decode"} {
		if err := next.Set(set, Source{}); err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
	next.Complete()
	got, _ := json.Marshal(Diff(f, next))
	wantDiff := `[{"field":"pools.new.model.name","from":null,"to":"dynctl-tiny"},{"field":"pools.new.decode.workers","from":null,"to":1},{"field":"pools.servers.engine.max_num_seqs","from":null,"to":4},` +
		`{"field":"pools.small.model.name","from":"dynctl-tiny","to":"dynctl-tiny-vision"},{"field":"pools.small.model.path","from":null,"to":"dynctl-tiny-vision"},{"field":"pools.small.decode.workers","from":1,"to":3},` +
		`{"field":"attached.http://gpu-3.lab:8001.kv_events","from":"tcp://gpu-3.lab:5557","to":null},{"field":"attached.http://x:1.role","from":null,"to":"decode"}]`
	if string(got) != wantDiff {
		t.Errorf("differences\n%s\nwant\n%s", got, wantDiff)
	}
	if len(f.Topology.Pools) != 2 || f.Topology.Pools["small"].Decode != 1 || f.Topology.Attached[0].Engine.Server.Events == "" {
		t.Errorf("the file it was copied from has changed: %+v", f.Topology)
	}
	if !strings.Contains(strings.Join(next.Notes, ""), "pools.servers.engine.max_num_seqs now") {
		t.Errorf("notes %q", next.Notes)
	}
}

// Every example can be read, is explained, and is as it would be written.
func TestExamples(t *testing.T) {
	names, err := filepath.Glob(examples + "*.yaml")
	if err != nil || len(names) < 5 {
		t.Fatalf("%d examples: %v", len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitN(string(content), "\n", 4)
			if lines[0] != "# yaml-language-server: $schema=schema.json" || lines[1] != "#" || !strings.HasPrefix(lines[2], "# ") {
				t.Error("it must begin with the line of the schema, and say what it shows")
			}
			f, err := Parse(Source{Name: name}, content)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Topology.Validate(); err != nil {
				t.Error(err)
			}
			again := mustParse(t, render(t, f))
			if d := Diff(f, again); len(d) != 0 || again.Namespace != f.Namespace {
				t.Errorf("written and read it differs: %+v", d)
			}
		})
	}
}

func render(t *testing.T, f File) string {
	t.Helper()
	b, err := f.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func FuzzParse(f *testing.F) {
	names, _ := filepath.Glob(examples + "*.yaml")
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte("decode: 1\nengine: {devices: [a, b], itl_target: 1ms}\ndisagg: {background_prefill: false}"))
	f.Add([]byte(mixedFile))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := Parse(Source{Name: "f"}, content)
		if err != nil {
			var ps Problems
			if !errors.As(err, &ps) || len(ps) == 0 || slices.ContainsFunc(ps, func(p Problem) bool { return p.Text == "" }) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if err := file.Topology.Validate(); err != nil {
			t.Fatalf("a file that is right declares what is not: %v", err)
		}
		file.Notes = nil // on spellings, which are those of this release once written
		again := mustParse(t, render(t, file))
		if !reflect.DeepEqual(file, again) {
			t.Fatalf("read %+v\nwritten and read %+v", file, again)
		}
	})
}
