package cluster

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// mixed has our own workers, supervised servers and attached ones.
func mixed() Topology {
	return Topology{
		Model: ModelSpec{Name: "m", Path: "/m"}, Prefill: 1, Decode: 2, Restarts: 3, Generation: 7,
		Pools: map[string]Pool{
			"small":  {Model: ModelSpec{Name: "s"}, Decode: 1, DecodeSpec: RoleSpec{Engine: EngineSpec{KVBlocks: 5}}},
			"server": {Model: ModelSpec{Name: "m", Path: "/m"}, Decode: 2, Engine: EngineSpec{Backend: BackendVLLM, Server: External{Command: "x"}}},
		},
		Attached: []Attached{
			{Model: ModelSpec{Name: "big"}, Role: RolePrefill, Engine: EngineSpec{Backend: BackendVLLM, Server: External{URL: "http://a:1"}}},
			{Model: ModelSpec{Name: "big"}, Role: RoleDecode, Engine: EngineSpec{Backend: BackendVLLM, Server: External{URL: "http://a:2"}}, Node: "n"},
		},
	}
}

func TestPoolsOfATopology(t *testing.T) {
	top := mixed()
	if err := top.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := top.PoolNames(); !slices.Equal(got, []string{"", "server", "small", "http://a:1", "http://a:2"}) {
		t.Errorf("pools %q", got)
	}
	if top.Workers() != 8 || top.Count(RoleDecode) != 2 || top.CountAll(RoleDecode) != 6 || top.CountAll(RolePrefill) != 2 {
		t.Errorf("%d workers, %d decode, %d prefill", top.Workers(), top.CountAll(RoleDecode), top.CountAll(RolePrefill))
	}
	for pool, want := range map[string]Topology{
		"":           {Model: top.Model, Prefill: 1, Decode: 2},
		"small":      {Model: ModelSpec{Name: "s"}, Decode: 1, DecodeSpec: RoleSpec{Engine: EngineSpec{KVBlocks: 5}}},
		"http://a:1": {Model: ModelSpec{Name: "big"}, Prefill: 1, Engine: top.Attached[0].Engine},
		"http://a:2": {Model: ModelSpec{Name: "big"}, Decode: 1, Engine: top.Attached[1].Engine},
		"gone":       {},
	} {
		want.Restarts, want.Generation = 3, 7
		if got := top.In(pool); !got.Equal(want) {
			t.Errorf("%s: %+v, want %+v", pool, got, want)
		}
	}
	var read Topology
	if b, err := json.Marshal(top); err != nil || json.Unmarshal(b, &read) != nil || !read.Equal(top) {
		t.Errorf("written and read: %+v %v", read, err)
	}
}

// What one pool takes, another copy of the topology does not see.
// A model without a path is the built-in one, or that of a server.
func TestModelOfAServer(t *testing.T) {
	for name, tc := range map[string]struct {
		path, backend string
		want          bool
	}{"built in": {"", "", false}, "files": {"/m", "", false}, "server": {"", BackendVLLM, true}, "server with a tokenizer here": {"/m", BackendVLLM, false}} {
		top := Topology{Model: ModelSpec{Name: "m", Path: tc.path}, Engine: EngineSpec{Backend: tc.backend}, Decode: 1}
		if got := top.OfServer(); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestPutPool(t *testing.T) {
	top := mixed()
	next := top
	for _, pool := range top.PoolNames()[:3] {
		view := next.In(pool)
		view.Decode = 9
		next.Put(pool, view)
		if next.In(pool).Decode != 9 || top.In(pool).Decode == 9 || len(next.Pools) != 2 || len(next.Attached) != 2 {
			t.Errorf("pool %q: %+v", pool, next)
		}
		view.Decode = top.In(pool).Decode
		if next.Put(pool, view); !next.Equal(top) {
			t.Errorf("pool %q, put back: %+v", pool, next)
		}
	}
	next.Put("small", Topology{})
	if next.Put("server", Topology{}); next.Pools != nil || len(top.Pools) != 2 {
		t.Errorf("%+v", next.Pools)
	}
	if next.Put("x", Topology{Decode: 1}); next.Pools["x"].Decode != 1 {
		t.Errorf("%+v", next.Pools)
	}
}

// A pool has every field that the topology has for its main one.
func TestPoolHasTheFieldsOfATopology(t *testing.T) {
	ignored := []string{"Pools", "Attached", "Restarts", "Rolling", "Flip", "Generation", "UpdatedAt", "UpdatedBy", "Reason"}
	of := reflect.TypeFor[Topology]()
	for i := range of.NumField() {
		if name := of.Field(i).Name; !slices.Contains(ignored, name) {
			f, ok := reflect.TypeFor[Pool]().FieldByName(name)
			if !ok || f.Type != of.Field(i).Type {
				t.Errorf("a pool has no %s", name)
			}
		}
	}
}

func TestProblemsOfPools(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Topology)
		want   string // how the only problem begins
	}{
		"a bad name":           {func(t *Topology) { t.Pools["A"] = Pool{} }, "pools.A: names of pools"},
		"no decode worker":     {func(t *Topology) { t.Pools["small"] = Pool{Model: ModelSpec{Name: "s"}, Prefill: 1} }, "pools.small.decode: prefill workers need"},
		"no name":              {func(t *Topology) { t.Pools["small"] = Pool{Decode: 1} }, "pools.small.model: no name"},
		"a bad engine":         {func(t *Topology) { t.Pools["small"] = Pool{Engine: EngineSpec{KVBlocks: -1}} }, "pools.small.kv_blocks: "},
		"another path":         {func(t *Topology) { t.Model.Path = "/other" }, "pools.server.model: m is what the main pool serves"},
		"between pools":        {func(t *Topology) { t.Model.Name = "s"; t.Model.Path = "" }, ""},
		"other names":          {func(t *Topology) { t.Attached[0].Model.Name = "s" }, ""},
		"of an attached one":   {func(t *Topology) { t.Attached[0].Model.Path = "/big" }, "attached.http://a:2.model: big is what pool http://a:1 serves"},
		"attached twice":       {func(t *Topology) { t.Attached[1].Engine.Server.URL = "http://a:1" }, "attached.http://a:1.url: it is attached twice"},
		"attached encode":      {func(t *Topology) { t.Attached[0].Role = RoleEncode }, ""},
		"attached, no role":    {func(t *Topology) { t.Attached[0].Role = "encoder" }, "attached.http://a:1.role: "},
		"attached engine":      {func(t *Topology) { t.Attached[0].Engine.Backend = BackendCPU }, "attached.http://a:1.engine: "},
		"attached without url": {func(t *Topology) { t.Attached = t.Attached[:1]; t.Attached[0].Engine.Server.URL = "" }, "attached..url: it has none"},
		"attached to nowhere":  {func(t *Topology) { t.Attached[0].Engine.Server.URL = "gpu-3" }, "attached.gpu-3.server.url: not the address"},
		"attached no model":    {func(t *Topology) { t.Attached[0].Model.Name = "" }, "attached.http://a:1.model: no name"},
		"attached device":      {func(t *Topology) { t.Attached[0].Engine.Device = "gpu" }, "attached.http://a:1.server.url: a server that runs already has"},
		"attached environment": {func(t *Topology) { t.Attached[0].Engine.Server.Env = "A=1" }, "attached.http://a:1.server.url: a server"},
		"attached option":      {func(t *Topology) { t.Attached[0].Engine.KVBlocks = 1 }, "attached.http://a:1.kv_blocks: a server of vllm"},
		"attached openai":      {func(t *Topology) { t.Attached[0].Engine.Backend = BackendOpenAI }, "attached.http://a:1.backend: servers of openai exchange no KV"},
	} {
		t.Run(name, func(t *testing.T) {
			top := mixed()
			c.change(&top)
			got := top.Problems()
			if (c.want == "") != (len(got) == 0) || len(got) > 1 || len(got) == 1 && !strings.HasPrefix(got[0].Error(), c.want) {
				t.Errorf("problems %v, want %s", got, c.want)
			}
		})
	}
}
