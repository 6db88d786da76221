package topofile

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// sample is a value that a field takes and that is not its default.
func sample(fd Field) any {
	switch {
	case fd.Numbers != nil:
		return fd.Numbers[0]
	case fd.Key.Choices != nil:
		return fd.Key.Choices[len(fd.Key.Choices)-1]
	case strings.HasSuffix(fd.Path, ".speculative"):
		return "ngram:7"
	case strings.HasPrefix(fd.Path, "rollout."):
		return "10%"
	case strings.HasPrefix(fd.Path, "planner.kubernetes_"):
		return "deployments.apps/x"
	case strings.HasSuffix(fd.Path, ".server.sleep"):
		return true // false is the same as nothing
	case fd.form == commandLine:
		return "serve 'a b'"
	case fd.form == environment:
		return "A=1 'B=x y'"
	}
	switch fd.Key.Kind {
	case config.KindInt:
		return 3
	case config.KindRatio:
		return 0.75
	case config.KindBool:
		return false
	case config.KindList:
		return []string{"cpu:1", "cpu:2"}
	case config.KindDuration:
		return 1500 * time.Millisecond
	}
	return "x"
}

// Each field changes what is declared, is written, read, shown as a difference, and can
// be put back.
func TestEveryField(t *testing.T) {
	list := Fields()
	for _, fd := range poolFields() {
		list = append(list, fd.in("p"))
	}
	for _, fd := range list {
		t.Run(fd.Path, func(t *testing.T) {
			if fd.Key.Help == "" {
				t.Error("it is not explained")
			}
			var f File
			v := sample(fd)
			fd.set(&f, v)
			if reflect.DeepEqual(f, File{}) || !reflect.DeepEqual(fd.Get(f), v) {
				t.Errorf("set to %v it is %v in %+v", v, fd.Get(f), f)
			}
			var g File
			r := reader{at: map[string]position{}}
			if r.read([]byte(render(t, f))); len(r.problems) != 0 {
				t.Error(r.problems)
			}
			if g = r.file; !reflect.DeepEqual(f, g) {
				t.Errorf("written and read: %+v, want %+v", g, f)
			}
			if d := Diff(File{}, f); fd.Path != "namespace" && (len(d) != 1 || d[0].Path != fd.Path || d[0].From != nil || d[0].To == nil) {
				t.Errorf("difference %+v", d)
			}
			g = f.Clone()
			text := config.Value{Value: v}.Text()
			if err := (&File{}).Set(fd.Path+"="+text, Source{}); err != nil {
				t.Error(err)
			}
			if err := g.Set(fd.Path+"=", Source{}); err != nil || fd.Get(g) != nil || fd.Get(f) == nil {
				t.Errorf("put back: %v %v", fd.Get(g), err)
			}
		})
	}
}

// What a topology can say, a file can say: a new field needs a line in the table.
func TestNothingOfATopologyIsMissing(t *testing.T) {
	var f File
	for _, fd := range Fields() {
		fd.set(&f, sample(fd))
	}
	for _, fd := range poolFields() {
		fd.in("p").set(&f, sample(fd))
	}
	for _, fd := range attachedFields() {
		fd.at("http://a:1").set(&f, sample(fd))
	}
	ignored := map[string]bool{"Generation": true, "UpdatedAt": true, "UpdatedBy": true, "Reason": true,
		"Restarts": true, "Rolling": true, "Flip": true} // orders, not a state to declare
	var walk func(at string, v reflect.Value)
	walk = func(at string, v reflect.Value) {
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch field := v.Field(i); {
			case ignored[name] && at == "Topology":
			case field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[cluster.Speculative]():
				walk(at+"."+name, field)
			case strings.HasPrefix(at, "Topology.EncodeSpec.Engine") && !strings.HasSuffix(at, ".Server") && name != "Backend" && name != "Device":
				if !field.IsZero() {
					t.Errorf("a field sets %s.%s, which encode workers do not use", at, name)
				}
			case field.IsZero():
				t.Errorf("no field sets %s.%s", at, name)
			}
		}
	}
	ignored["Planner"] = true // of pools: the main one has settings
	walk("Topology", reflect.ValueOf(f.Topology))
	delete(ignored, "Planner")
	ignored["Pools"], ignored["Attached"] = true, true
	walk("Topology", reflect.ValueOf(f.Topology.In("p")))
	a := reflect.ValueOf(f.Topology.Attached[0])
	for i := range a.NumField() {
		if a.Field(i).IsZero() {
			t.Errorf("no field sets %s of an attached server", a.Type().Field(i).Name)
		}
	}
	// Take, which rolls back, knows all of them, too.
	var taken cluster.Topology
	if taken.Take(f.Topology); !taken.Equal(f.Topology) {
		t.Errorf("Take leaves something out: %+v", taken)
	}
}

func TestOfAndOnto(t *testing.T) {
	now := cluster.Revision{
		Topology: cluster.Topology{Model: cluster.ModelSpec{Name: "m"}, Decode: 2, Generation: 7, UpdatedBy: "me"},
		Settings: map[string]json.RawMessage{"disagg.strategy": json.RawMessage(`"prefill-first"`), "of.another.version": json.RawMessage("1")},
	}
	f := Of(now)
	if f.Topology.Generation != 0 || len(f.Settings) != 1 {
		t.Errorf("file of it: %+v", f)
	}
	if err := f.Set("decode=3", Source{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Set("disagg.strategy=", Source{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Set("router.policy=round-robin", Source{}); err != nil {
		t.Fatal(err)
	}
	next := f.Onto(now)
	if next.Topology.Decode != 3 || next.Topology.Generation != 7 || len(next.Settings) != 2 || string(next.Settings["router.policy"]) != `"round-robin"` || next.Settings["of.another.version"] == nil {
		t.Errorf("declared: %+v", next)
	}
	if len(now.Settings) != 2 || now.Settings["disagg.strategy"] == nil {
		t.Errorf("what was there has changed: %v", now.Settings)
	}
	if got := (File{}).Onto(cluster.Revision{}); got.Settings != nil {
		t.Errorf("nothing onto nothing: %+v", got)
	}
}

func TestSet(t *testing.T) {
	for assignment, want := range map[string]string{
		"decode":                  `"decode" is not <field>=<value>`,
		"decod=1":                 `no field "decod"; did you mean decode?`,
		"kv_blocks=1":             `no field "kv_blocks"; did you mean engine.kv_blocks?`,
		"engine.kv_blcks=1":       `no field "engine.kv_blcks"; did you mean engine.kv_blocks?`,
		"decode.workers=many":     `decode.workers: "many" is not a whole number from 0 to 1024`,
		"encode=many":             `encode.workers: "many" is not a whole number from 0 to 1024`,
		"encode.engine.kv_blocks": `"encode.engine.kv_blocks" is not <field>=<value>`,

		"encode.engine.kv_blocks=1":    `no field "encode.engine.kv_blocks"; encode workers have no such option: they compute only the embeddings of images`,
		"engine.backend=rocm":          `engine.backend: "rocm" is not one of cpu, cuda, mock, vllm, sglang, trtllm, openai`,
		"encode.engine.backend=sglang": `encode.engine.backend: "sglang" is not one of cpu, cuda, mock, vllm`,
		"engine.server.command='":      `engine.server.command: a single quote is not closed`,
		"engine.server.env='A=1\n2'":   `engine.server.env: the value of a variable has several lines; it may have one`,
		"disagg.strategy=fastest":      `disagg.strategy: "fastest" is not one of decode-first, prefill-first`,
	} {
		if err := (&File{}).Set(assignment, Source{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", assignment, err, want)
		}
	}
	f := mustParse(t, "decode: 1\nmodel: {path: /m/a}")
	if err := f.Set("model.path=/m/b.gguf", Source{}); err != nil {
		t.Fatal(err)
	}
	if f.Complete(); f.Topology.Model.Name != "b" {
		t.Errorf("the name stays %q", f.Topology.Model.Name)
	}
}

func TestDiff(t *testing.T) {
	a := mustParse(t, "decode: 1\nengine: {kv_blocks: 5, devices: [cpu]}\ndisagg: {remote_prefill_timeout: 5s}")
	b := mustParse(t, "decode: 2\nengine: {devices: [cpu:0]}\ndisagg: {background_prefill: false}")
	got, _ := json.Marshal(Diff(a, b))
	want := `[{"field":"engine.devices","from":["cpu"],"to":["cpu:0"]},{"field":"engine.kv_blocks","from":5,"to":null},` +
		`{"field":"decode.workers","from":1,"to":2},{"field":"disagg.overlap_kv_transfer","from":null,"to":false},{"field":"disagg.remote_prefill_timeout","from":"5s","to":null}]`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if d := Diff(a, a.Clone()); len(d) != 0 {
		t.Errorf("of the same: %v", d)
	}
}

// The schema in the repository is the present one, and agrees with Parse.
func TestSchema(t *testing.T) {
	got, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	const path = examples + "schema.json"
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not up to date (%v): make docs", path, err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("topology.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("topology.json")
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]bool{
		"decode: 1": true, "encode: 1": true, "pools: {a: {decode: 1}}": true, "pools: {a: {decode: {engine: {kv_blocks: 1}}}}": true, "pools: {a: {disagg: {}}}": false, "pools: 1": false,
		"attached: [{url: a, engine: vllm, role: decode, model: m, kv_events: 'off'}]": true, "attached: [{url: a}]": false, "attached: [{url: a, engine: vllm, role: encode, model: m}]": true, "attached: [{url: a, engine: vllm, role: cook, model: m}]": false, "attached: [{url: a, engine: vllm, role: decode, model: m, port: 1}]": false, "encode: {engine: {devices: [cpu]}}": true, "encode: {engine: {kv_blocks: 1}}": false, "decode: {workers: 1}": true, "decode: -1": false, "decode: {worker: 1}": false, "foo: 1": false,
		"engine: {block_size: 48}": false, "engine: {itl_target: 100ms}": true, "engine: {itl_target: 100}": false, "engine: {backend: cuda}": true, "engine: {backend: rocm}": false,
		"engine: {backend: vllm, server: {command: [vllm, serve], env: {A: 1}}}": true, "engine: {server: {command: a b, env: [A=1]}}": true, "engine: {server: {env: A=1}}": true,
		"engine: {server: {command: {a: b}}}": false, "engine: {server: {env: {A: [1]}}}": false, "encode: {engine: {server: {url: 'http://a'}}}": true, "encode: {engine: {backend: vllm}}": true, "encode: {engine: {backend: sglang}}": false,
		"decode: {engine: {devices: [cpu:0], kv_cache_dtype: int8}}": true, "disagg: {strategy: none}": false, "disagg: {overlap_kv_transfer: true}": true,
	} {
		var v any
		if err := yaml.Unmarshal([]byte(content), &v); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); (err == nil) != want {
			t.Errorf("%s: %v, want valid: %v", content, err, want)
		}
	}
}

// Editors show what a section is about.
func TestSectionsAreDescribed(t *testing.T) {
	got, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(got), `"description": ""`); n > 0 || !strings.Contains(string(got), `"description": "`) {
		t.Errorf("%d sections or settings have no description", n)
	}
}
