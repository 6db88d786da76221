package cluster

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every field that a role sets wins over that of all, also those that come later.
func TestSpecsOverlayEveryField(t *testing.T) {
	var all, role EngineSpec
	fill(t, reflect.ValueOf(&all).Elem(), 1)
	fill(t, reflect.ValueOf(&role).Elem(), 2)
	top := Topology{Engine: all, DecodeSpec: RoleSpec{Engine: role}}
	if _, got := top.Specs(RoleDecode); got != role {
		t.Errorf("decode has %+v, want %+v", got, role)
	}
	if _, got := top.Specs(RolePrefill); got != all {
		t.Errorf("prefill has %+v, want %+v", got, all)
	}
	for i := range reflect.TypeOf(role.Server).NumField() { // and those of a server one by one
		one, want := EngineSpec{}, all
		reflect.ValueOf(&one.Server).Elem().Field(i).Set(reflect.ValueOf(role.Server).Field(i))
		reflect.ValueOf(&want.Server).Elem().Field(i).Set(reflect.ValueOf(role.Server).Field(i))
		top.DecodeSpec.Engine = one
		if _, got := top.Specs(RoleDecode); got != want {
			t.Errorf("server.%s alone: got %+v, want %+v", reflect.TypeOf(role.Server).Field(i).Name, got, want)
		}
	}
	for i := range reflect.TypeOf(role).NumField() {
		if reflect.TypeOf(role).Field(i).Name == "Server" {
			continue
		}
		one := EngineSpec{}
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(role).Field(i))
		want := all
		reflect.ValueOf(&want).Elem().Field(i).Set(reflect.ValueOf(role).Field(i))
		top.DecodeSpec.Engine = one
		if _, got := top.Specs(RoleDecode); got != want {
			t.Errorf("%s alone: got %+v, want %+v", reflect.TypeOf(role).Field(i).Name, got, want)
		}
	}
}

// fill sets all fields of a struct to something that depends on n.
func fill(t *testing.T, v reflect.Value, n int64) {
	t.Helper()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			f.SetInt(n)
		case reflect.String:
			f.SetString(strings.Repeat("x", int(n)))
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Struct:
			fill(t, f, n)
		default:
			t.Fatalf("%s: a %s; specs must be comparable", v.Type().Field(i).Name, f.Kind())
		}
	}
}

func TestSpecsQuantize(t *testing.T) {
	top := Topology{Model: ModelSpec{Name: "m", Quantize: "q8_0"}, DecodeSpec: RoleSpec{Quantize: QuantizeNone}, PrefillSpec: RoleSpec{Quantize: "q4_0"}}
	for role, want := range map[Role]string{RolePrefill: "q4_0", RoleDecode: "", RoleEncode: "q8_0"} {
		if m, _ := top.Specs(role); m.Quantize != want || m.Name != "m" {
			t.Errorf("%s has %+v, want the format %q", role, m, want)
		}
	}
}

func TestPlacementOf(t *testing.T) {
	top := Topology{DecodeSpec: RoleSpec{Placement: PlacementPack}}
	if top.PlacementOf(RolePrefill) != PlacementSpread || top.PlacementOf(RoleDecode) != PlacementPack {
		t.Error("placement of a role, and the default")
	}
	top.Placement, top.DecodeSpec.Placement = PlacementPack, PlacementSpread
	if top.PlacementOf(RolePrefill) != PlacementPack || top.PlacementOf(RoleDecode) != PlacementSpread {
		t.Error("placement of all, and one role against it")
	}
}

func TestTopologyProblems(t *testing.T) {
	top := Topology{
		Prefill: 1, Decode: 1, Model: ModelSpec{Name: "m"}, Placement: "dense",
		Engine:      EngineSpec{Backend: "rocm", Device: "cpu:0,cpu:0"},
		PrefillSpec: RoleSpec{Engine: EngineSpec{BlockSize: 32}, Quantize: "q5"},
		DecodeSpec:  RoleSpec{Engine: EngineSpec{Device: "CPU", KVDType: "int8"}, Placement: "tight"},
	}
	want := []string{`backend: "rocm" is not one of cpu, cuda, mock`, "device: cpu:0 is named twice", "placement: ", `prefill.quantize: "q5"`, "decode.placement", "decode.device: ", "prefill.quantize: prefill and decode", "prefill.block_size: prefill and decode workers exchange", "decode.kv_cache_dtype: "}
	got := top.Problems()
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if !strings.HasPrefix(got[i].Error(), want[i]) {
			t.Errorf("problem %d is %q, want %q", i, got[i].Error(), want[i])
		}
	}
	if err := top.Validate(); err == nil || err.Error() != got[0].Error() {
		t.Errorf("Validate returns %v, want the first problem", err)
	}
	// What differs may differ where nothing is exchanged.
	top = Topology{Decode: 1, Model: top.Model, PrefillSpec: RoleSpec{Engine: EngineSpec{BlockSize: 32}}}
	if err := top.Validate(); err != nil {
		t.Error(err)
	}
}

func TestRunsOn(t *testing.T) {
	for _, c := range []struct {
		spec EngineSpec
		on   string // of cpu:0, gpu:0, gpu:1 and gpu:2+3
	}{
		{EngineSpec{}, "cpu:0 gpu:0 gpu:1 gpu:2+3"},
		{EngineSpec{Backend: BackendCPU}, "cpu:0"},
		{EngineSpec{Backend: BackendCUDA}, "gpu:0 gpu:1 gpu:2+3"},
		{EngineSpec{Backend: BackendMock}, "cpu:0 gpu:0 gpu:1 gpu:2+3"},
		{EngineSpec{Backend: BackendMock, Device: "gpu:1"}, "gpu:1"},
		{EngineSpec{Backend: BackendCUDA, Device: "gpu:1,cpu"}, "gpu:1"},
		{EngineSpec{Device: "gpu,cpu:1"}, "gpu:0 gpu:1 gpu:2+3"},
		{EngineSpec{TensorParallel: 1}, "cpu:0 gpu:0 gpu:1"},
		{EngineSpec{TensorParallel: 2}, "cpu:0 gpu:2+3"},
		{EngineSpec{TensorParallel: 2, Device: "gpu"}, "gpu:2+3"},
		{EngineSpec{Device: "gpu:2+3"}, "gpu:2+3"},
		{EngineSpec{TensorParallel: 4, Backend: BackendCUDA}, ""},
		{EngineSpec{Backend: BackendVLLM, Server: External{Command: "x"}}, "cpu:0 gpu:0 gpu:1 gpu:2+3"},
		{EngineSpec{Backend: BackendVLLM, Server: External{URL: "http://a:1"}}, "none"},
		{EngineSpec{TensorParallel: 4, Backend: BackendMock, Device: "gpu"}, "gpu:0 gpu:1 gpu:2+3"},
	} {
		var on []string
		for _, d := range []string{"", "cpu:0", "gpu:0", "gpu:1", "gpu:2+3"} {
			if c.spec.RunsOn(d) {
				on = append(on, cmp.Or(d, "none"))
			}
		}
		if got := strings.Join(on, " "); got != c.on {
			t.Errorf("%+v runs on %s, want %s", c.spec, got, c.on)
		}
	}
}

func TestWantedDevices(t *testing.T) {
	for want, e := range map[string]EngineSpec{
		"gpu with 2 ranks": {Device: "gpu", TensorParallel: 2}, "cpu:0 or gpu": {Device: "cpu:0,gpu"},
		"that cuda computes on": {Backend: BackendCUDA}, "that cuda computes on with 4 ranks": {Backend: BackendCUDA, TensorParallel: 4}, "with 2 ranks": {TensorParallel: 2},
	} {
		if got := e.WantedDevices(); got != want {
			t.Errorf("%+v wants a device %q, want %q", e, got, want)
		}
	}
}

// Names of groups are those of devices, and a number of ranks that they do not have is refused.
func TestGroupsOfGPUs(t *testing.T) {
	for devices, want := range map[string]string{
		"gpu:0+1": "", "gpu:0+1,gpu:2+3": "", "gpu:0+": "is not the name of a device", "gpu:+1": "is not the name of a device", "gpu:0+0+0": "2 ranks cannot run on gpu:0+0+0, which has 3",
	} {
		var wrong []string
		(EngineSpec{Device: devices, TensorParallel: 2}).checkDevices(func(_, format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) })
		if got := strings.Join(wrong, "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", devices, got, want)
		}
	}
}

// Encode workers follow the options that they have a use for, those of all included, and
// any other one is refused for them by name, also one that comes later.
func TestEngineOfEncodeWorkers(t *testing.T) {
	var all EngineSpec
	fill(t, reflect.ValueOf(&all).Elem(), 1)
	top := Topology{Model: ModelSpec{Name: "m", Path: "/m"}, Decode: 1, Encode: 1, Engine: all}
	if _, got := top.Specs(RoleEncode); got != (EngineSpec{Backend: all.Backend, Device: all.Device, Server: all.Server}) {
		t.Errorf("it has %+v", got)
	}
	top.Engine = EngineSpec{}
	for i := range reflect.TypeFor[EngineSpec]().NumField() {
		f := reflect.TypeFor[EngineSpec]().Field(i)
		top.EncodeSpec.Engine, top.DecodeSpec.Engine = EngineSpec{}, EngineSpec{}
		reflect.ValueOf(&top.EncodeSpec.Engine).Elem().Field(i).Set(reflect.ValueOf(all).Field(i))
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		want := "encode." + strings.TrimSuffix(name, "_ms") + ": encode workers have no such option"
		refused := slices.ContainsFunc(top.Problems(), func(e FieldError) bool { return strings.HasPrefix(e.Error(), want) })
		if keeps := f.Name == "Backend" || f.Name == "Device" || f.Name == "Server"; refused == keeps {
			t.Errorf("%s: refused %v; %v", f.Name, refused, top.Problems())
		}
		top.DecodeSpec.Engine, top.EncodeSpec.Engine = top.EncodeSpec.Engine, EngineSpec{}
		for _, e := range top.Problems() {
			if strings.Contains(e.Text, "no such option") {
				t.Errorf("decode: %v", e)
			}
		}
	}
	// They exchange no KV blocks, and may be quantized as nobody else is.
	top = Topology{Model: top.Model, Prefill: 1, Decode: 1, Encode: 1, EncodeSpec: RoleSpec{Quantize: "q4_0", Placement: PlacementPack, Engine: EngineSpec{Backend: BackendMock, Device: "cpu"}}}
	if err := top.Validate(); err != nil {
		t.Error(err)
	}
	if top.PlacementOf(RoleEncode) != PlacementPack || top.PlacementOf(RoleDecode) != PlacementSpread {
		t.Error("placement of encode workers")
	}
}

// A running worker keeps its weights and KV pool in another role, so that only a role that
// has the same ones can be taken.
func TestAssignmentFlips(t *testing.T) {
	for _, from := range Roles {
		for _, to := range Roles {
			a := Assignment{Name: "worker-1", Role: from, Desire: DesireRun}
			next := a
			next.Role = to
			if got, want := a.Flips(next), from != to && from != RoleEncode && to != RoleEncode; got != want {
				t.Errorf("%s to %s: %v, want %v", from, to, got, want)
			}
		}
	}
}

// A GPU decodes what a CPU has prefilled, but nobody what was made up.
func TestBackendsThatExchangeBlocks(t *testing.T) {
	top := Topology{Prefill: 1, Decode: 1, Model: ModelSpec{Name: "m"}}
	top.PrefillSpec.Engine.Backend, top.DecodeSpec.Engine.Backend = BackendCPU, BackendCUDA
	if got := top.Problems(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	top.PrefillSpec.Engine.Backend = BackendMock
	if got := top.Problems(); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
