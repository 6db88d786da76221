package tensorfile

import (
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// global is a name of Python that a program refers to: one of those that are known.
type global struct{ module, name string }

func (g global) String() string { return g.module + "." + g.name }

// functions are the globals that may be called.
var functions = map[global]func(p *pickle, args tuple) any{
	{"collections", "OrderedDict"}:         orderedDict,
	{"torch", "Size"}:                      size,
	{"torch._utils", "_rebuild_tensor_v2"}: rebuildTensor,
	{"torch._utils", "_rebuild_parameter"}: rebuildParameter,
}

// dtypes are the storages of torch by the type of their elements.
var dtypes = map[global]safetensors.DType{
	{"torch", "FloatStorage"}:    safetensors.F32,
	{"torch", "HalfStorage"}:     safetensors.F16,
	{"torch", "BFloat16Storage"}: safetensors.BF16,
	{"torch", "DoubleStorage"}:   "F64",
	{"torch", "LongStorage"}:     "I64",
	{"torch", "IntStorage"}:      "I32",
	{"torch", "ShortStorage"}:    "I16",
	{"torch", "CharStorage"}:     "I8",
	{"torch", "ByteStorage"}:     "U8",
	{"torch", "BoolStorage"}:     "BOOL",
}

func (p *pickle) global(module, name string) {
	g := global{module, name}
	if functions[g] == nil && dtypes[g] == "" && p.err == nil {
		p.fail(unsupportedf("it refers to %.200q", g.String()))
	}
	p.push(g)
}

// storage is the memory that tensors share.
type storage struct {
	dtype safetensors.DType
	data  []byte
}

// storage finds the entry that a persistent id names: ("storage", class, key, device,
// number of elements). The device does not matter.
func (p *pickle) storage(id any) any {
	t, _ := id.(tuple)
	if len(t) != 5 || t[0] != "storage" {
		p.fail(formatf("%s is no storage", nameOf(id)))
		return nil
	}
	class, _ := t[1].(global)
	key, named := t[2].(string)
	count, counted := t[4].(int64)
	dtype := dtypes[class]
	if dtype == "" || !named || !counted {
		p.fail(formatf("a storage of %s, %s and %s", nameOf(t[1]), nameOf(t[2]), nameOf(t[4])))
		return nil
	}
	data, ok := p.storages["data/"+key]
	if !ok {
		p.fail(formatf("the archive has no storage %.100q", key))
		return nil
	}
	if size := int64(dtype.Bytes(1)); count < 0 || int64(len(data))%size != 0 || count != int64(len(data))/size {
		p.fail(formatf("storage %.100q has %d bytes, announced are %d elements of %s", key, len(data), count, dtype))
		return nil
	}
	return storage{dtype, data}
}

// call runs one of the functions.
func (p *pickle) call(function, args any) any {
	g, ok := function.(global)
	t, also := args.(tuple)
	if !ok || !also || functions[g] == nil {
		p.fail(unsupportedf("a call of %s with %s", nameOf(function), nameOf(args)))
		return nil
	}
	v := functions[g](p, t)
	if v == nil {
		p.fail(unsupportedf("a call of %s with these arguments", g))
	}
	return v
}

func orderedDict(_ *pickle, args tuple) any {
	if len(args) != 0 {
		return nil
	}
	return &dict{values: map[string]any{}, ordered: true}
}

func size(_ *pickle, args tuple) any {
	if len(args) != 1 {
		return nil
	}
	if t, ok := args[0].(tuple); ok {
		return t
	}
	return nil
}

// rebuildTensor takes storage, offset, shape, strides, whether gradients are wanted, and
// hooks; newer versions add metadata, of which none is known.
func rebuildTensor(_ *pickle, args tuple) any {
	if len(args) < 6 || len(args) > 7 || len(args) == 7 && args[6] != nil {
		return nil
	}
	s, ok := args[0].(storage)
	offset, also := args[1].(int64)
	if !ok || !also {
		return nil
	}
	v := view{dtype: s.dtype, storage: s.data, offset: offset}
	if v.shape, ok = whole(args[2]); !ok {
		return nil
	}
	if v.strides, ok = whole(args[3]); !ok {
		return nil
	}
	return v
}

func rebuildParameter(_ *pickle, args tuple) any {
	if len(args) != 3 {
		return nil
	}
	if v, ok := args[0].(view); ok {
		return v
	}
	return nil
}

func whole(v any) ([]int64, bool) {
	t, ok := v.(tuple)
	if !ok {
		return nil, false
	}
	numbers := make([]int64, len(t))
	for i, n := range t {
		if numbers[i], ok = n.(int64); !ok {
			return nil, false
		}
	}
	return numbers, true
}

// build sets the state of an OrderedDict, such as the versions of a module, which does
// not matter.
func (p *pickle) build() {
	state := p.pop(1)[0]
	if d, ok := p.top().(*dict); !ok || !d.ordered {
		p.fail(unsupportedf("a state for %s", nameOf(p.top())))
	} else if _, ok := state.(*dict); !ok {
		p.fail(unsupportedf("%s as the state of a dictionary", nameOf(state)))
	}
}
