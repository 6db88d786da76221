package topofile

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// Field is one value of a file.
type Field struct {
	// Path is the place in the file, as "decode.engine.max_num_seqs".
	Path string
	// Key says which values it takes, and what it means.
	Key config.Key
	// Numbers are the only ones allowed; nil means that Key says it all.
	Numbers []int

	setting bool // at run time, in File.Settings
	form    form
	get     func(*File) any
	set     func(*File, any)
}

// Get returns the value of the field, nil when it is not set.
func (fd Field) Get(f File) any {
	v := fd.get(&f)
	if v == nil || !fd.setting && reflect.ValueOf(v).IsZero() {
		return nil
	}
	if list, ok := v.([]string); ok && len(list) == 0 {
		return nil
	}
	return v
}

// Expect says in words which values the field takes.
func (fd Field) Expect() string {
	if fd.Numbers == nil {
		return fd.Key.Expect()
	}
	return "one of " + numberList(fd.Numbers)
}

// Fields lists every field but those of pools and attached servers, in the order of a file.
func Fields() []Field { return fields() }

var fields = sync.OnceValue(func() []Field {
	out := []Field{
		text("namespace", "namespace of the cluster to declare it in; without it, the one that dynctl is set to", nil, func(f *File) *string { return &f.Namespace }),
		text("model.name", "what clients put into \"model\"; by default the name of the path, or of the built-in model", nil, func(f *File) *string { return &f.Topology.Model.Name }),
		path(modelPath, "model directory or GGUF file on every node; relative paths begin at this file; "+cluster.BuiltinModelName+" and "+cluster.BuiltinVisionName+" are built in; without one, the built-in model, with encode workers that which sees images", func(f *File) *string { return &f.Topology.Model.Path }),
		text("model.quantize", "format that weights are given when they are loaded; by default they stay as they are stored", cluster.WeightFormats(), func(f *File) *string { return &f.Topology.Model.Quantize }),
		text("model.tool_parser", "how the model writes tool calls; by default as its chat template shows", append(parse.ToolParsers(), parse.None), func(f *File) *string { return &f.Topology.Model.ToolParser }),
		text("model.reasoning_parser", "how the model marks reasoning; by default as its chat template shows", append(parse.ReasoningParsers(), parse.None), func(f *File) *string { return &f.Topology.Model.ReasoningParser }),
		placement("placement", func(f *File) *cluster.Placement { return &f.Topology.Placement }),
	}
	out = append(out, engineFields("engine", func(f *File) *cluster.EngineSpec { return &f.Topology.Engine })...)
	out = append(out, roleFields(cluster.RolePrefill, "0 lets decode workers do both")...)
	out = append(out, roleFields(cluster.RoleDecode, "prefill and encode workers need at least one")...)
	out = append(out, roleFields(cluster.RoleEncode, "they need a model that sees images, or servers that encode for others")...)
	for _, k := range config.RuntimeKeys() {
		out = append(out, settingField(k))
	}
	for i := range out {
		out[i].Key.Name = out[i].Path
	}
	return out
})

func roleFields(role cluster.Role, beside string) []Field {
	at := string(role)
	workers := func(f *File) *int { n, _ := f.Topology.Of(role); return n }
	spec := func(f *File) *cluster.RoleSpec { _, s := f.Topology.Of(role); return s }
	out := []Field{
		number(at+".workers", "how many "+at+" workers there are; "+beside, cluster.MaxWorkersPerRole, workers),
		placement(at+".placement", func(f *File) *cluster.Placement { return &spec(f).Placement }),
		text(at+".quantize", "model.quantize of this role", append(cluster.WeightFormats(), cluster.QuantizeNone), func(f *File) *string { return &spec(f).Quantize }),
	}
	for _, fd := range engineFields(at+".engine", func(f *File) *cluster.EngineSpec { return &spec(f).Engine }) {
		if fd.Path == at+".engine.backend" && !role.HoldsKV() {
			fd.Key.Choices = append(cluster.OwnBackends(), cluster.EncodingBackends()...)
		}
		if role.Uses(optionOf(strings.TrimPrefix(fd.Path, at+".engine."))) {
			out = append(out, fd)
		}
	}
	return out
}

// optionOf returns the name that package cluster has for an option of engines.
func optionOf(name string) string {
	name, _, _ = strings.Cut(name, ".")
	if name == "devices" {
		return "device"
	}
	return name
}

// isRole reports whether a section is about the workers of a role.
func isRole(section string) bool { return slices.Contains(cluster.Roles, cluster.Role(section)) }

// engineFields returns the fields of one EngineSpec. Fields that nodes also have as settings
// are described in the table of settings.
func engineFields(at string, of func(*File) *cluster.EngineSpec) []Field {
	const million = 1_000_000
	out := []Field{
		text(at+".backend", "what computes: cpu, cuda for GPUs, mock for simulations without weights, or a server of another engine; empty means what the device is", cluster.Backends(), func(f *File) *string { return &of(f).Backend }),
		{
			Path: at + ".devices", Key: config.Key{Kind: config.KindList, Help: "devices to run on, by id (cpu:0) or kind (cpu); by default all"},
			get: func(f *File) any { return of(f).Devices() },
			set: func(f *File, v any) { of(f).Device = strings.Join(v.([]string), ",") },
		},
		number(at+".kv_blocks", "", 0, func(f *File) *int { return &of(f).KVBlocks }),
		number(at+".block_size", "", 0, func(f *File) *int { return &of(f).BlockSize }),
		text(at+".kv_cache_dtype", "", nil, func(f *File) *string { return &of(f).KVDType }),
		number(at+".max_model_len", "tokens of a prompt with its answer; by default what the model can do", 100*million, func(f *File) *int { return &of(f).MaxModelLen }),
		number(at+".max_num_seqs", "", 0, func(f *File) *int { return &of(f).MaxSeqs }),
		number(at+".tensor_parallel", "", 0, func(f *File) *int { return &of(f).TensorParallel }),
		number(at+".max_num_batched_tokens", "", 0, func(f *File) *int { return &of(f).MaxBatchTokens }),
		{
			Path: at + ".itl_target", Key: config.Key{Kind: config.KindDuration},
			get: func(f *File) any { return time.Duration(of(f).ITLTargetMS) * time.Millisecond },
			set: func(f *File, v any) { of(f).ITLTargetMS = v.(time.Duration).Milliseconds() },
		},
		{
			Path: at + ".speculative", Key: config.Key{Kind: config.KindString},
			get: func(f *File) any { return of(f).Speculative.String() },
			set: func(f *File, v any) { of(f).Speculative, _ = cluster.ParseSpeculative(v.(string)) }, // check has read it
		},
	}
	table := config.DynamodTable()
	for i := range out {
		if k, ok := table.Key("engine." + strings.TrimPrefix(out[i].Path, at+".")); ok {
			out[i].Key.Help, out[i].Key.Max, out[i].Key.Choices = k.Help, k.Max, k.Choices
			for _, former := range k.Former {
				out[i].Key.Former = append(out[i].Key.Former, at+"."+strings.TrimPrefix(former, "engine."))
			}
		}
		if strings.HasSuffix(out[i].Path, ".block_size") {
			out[i].Numbers = []int{16, 32, 64, 128}
		}
	}
	return append(out, serverFields(at+".server", func(f *File) *cluster.External { return &of(f).Server })...)
}

func text(path, help string, choices []string, of func(*File) *string) Field {
	return Field{
		Path: path, Key: config.Key{Kind: config.KindString, Help: help, Choices: slices.Clone(choices)},
		get: func(f *File) any { return *of(f) },
		set: func(f *File, v any) { *of(f) = v.(string) },
	}
}

// modelPath is the field that may name a built-in model.
const modelPath = "model.path"

func path(at, help string, of func(*File) *string) Field {
	fd := text(at, help, nil, of)
	fd.Key.Kind = config.KindPath
	return fd
}

func number(path, help string, most int, of func(*File) *int) Field {
	return Field{
		Path: path, Key: config.Key{Kind: config.KindInt, Help: help, Max: most},
		get: func(f *File) any { return *of(f) },
		set: func(f *File, v any) { *of(f) = v.(int) },
	}
}

func toggle(path, help string, of func(*File) *bool) Field {
	return Field{
		Path: path, Key: config.Key{Kind: config.KindBool, Help: help},
		get: func(f *File) any { return *of(f) },
		set: func(f *File, v any) { *of(f) = v.(bool) },
	}
}

func placement(path string, of func(*File) *cluster.Placement) Field {
	return Field{
		Path: path, Key: config.Key{Kind: config.KindString, Choices: cluster.Placements(), Help: "where workers go when they are placed: spread over all nodes, or pack to fill one after the other"},
		get: func(f *File) any { return string(*of(f)) },
		set: func(f *File, v any) { *of(f) = cluster.Placement(v.(string)) },
	}
}

// settingField is a setting that changes at run time.
func settingField(k config.Key) Field {
	return Field{
		Path: k.Name, Key: k, setting: true,
		get: func(f *File) any {
			raw, ok := f.Settings[k.Name]
			if !ok {
				return nil
			}
			v, err := k.DecodeRuntime(raw)
			if err != nil {
				return string(raw) // stored by somebody else: shown, and used by nobody
			}
			return v
		},
		set: func(f *File, v any) {
			if raw, err := k.EncodeRuntime(v); err == nil {
				f.keep(k.Name, raw)
			}
		},
	}
}

// field finds a field by its path, or by the one that it had in the release before.
func field(path string) (Field, bool) {
	if url, name, ok := underAttached(path); ok {
		i := slices.IndexFunc(attachedFields(), func(fd Field) bool { return fd.Path == name })
		if i < 0 {
			return Field{}, false
		}
		return attachedFields()[i].at(url), true
	}
	list, rest := scope(path)
	i := slices.IndexFunc(list, func(fd Field) bool { return fd.Path == rest || slices.Contains(fd.Key.Former, rest) })
	if i < 0 {
		return Field{}, false
	}
	if pool, _, ok := underPool(path); ok {
		return list[i].in(pool), true
	}
	return list[i], true
}

// isSection reports whether fields are below a path.
func isSection(path string) bool {
	if path == poolSection || path == attachedSection {
		return true
	}
	list, rest := scope(path)
	return rest == "" || slices.ContainsFunc(list, func(fd Field) bool { return strings.HasPrefix(fd.Path, rest+".") })
}
