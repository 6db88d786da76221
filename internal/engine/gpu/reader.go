package gpu

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// target is a piece of device memory that is filled with tensors, one behind the other.
type target struct {
	address *uint64 // is set when there is memory
	parts   []model.Tensor
}

// elems is the number of values.
func (t *target) elems() (n int64) {
	for _, p := range t.parts {
		n += elems(p)
	}
	return n
}

func elems(t model.Tensor) int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// reader collects what is to be loaded; the first error sticks.
type reader struct {
	model   *model.Model
	targets []target
	err     error
}

// need adds a target of tensors that the model must have.
func (r *reader) need(address *uint64, layer int, roles ...model.Role) {
	if r.want(address, layer, roles...); r.err == nil && (len(r.targets) == 0 || r.targets[len(r.targets)-1].address != address) {
		r.err = fmt.Errorf("layer %d has no tensor of role %d", layer, roles[0])
	}
}

// want adds a target of tensors that the model has all of, or none.
func (r *reader) want(address *uint64, layer int, roles ...model.Role) {
	t := target{address: address}
	for _, role := range roles {
		tensor, ok := r.model.Weight(role, layer)
		if !ok {
			continue
		}
		switch tensor.DType {
		case safetensors.BF16, safetensors.F16, safetensors.F32:
		default:
			r.fail(fmt.Errorf("%w: %s is %s, kernels know bf16; a CPU device (cpu:0) computes it", ErrUnsupported, tensor.Name, tensor.DType))
		}
		t.parts = append(t.parts, tensor)
	}
	switch len(t.parts) {
	case 0:
	case len(roles):
		r.targets = append(r.targets, t)
	default:
		r.fail(fmt.Errorf("layer %d has only some of the tensors that are loaded with %s", layer, t.parts[0].Name))
	}
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// bytes is the memory that an arena for the targets needs.
func (r *reader) bytes() (n int64) {
	for i := range r.targets {
		n += device.Aligned(2 * r.targets[i].elems())
	}
	return n
}
