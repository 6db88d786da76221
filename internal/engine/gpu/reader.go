package gpu

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// matrix is a matrix in device memory, perhaps several stacked by rows. The zero value
// means that the model does not have it.
type matrix struct {
	at, scales uint64
	kind       kernels.WeightType
}

// target is a matrix or a vector to be filled with tensors, one after the other.
type target struct {
	matrix *matrix
	vector *uint64 // in place of matrix
	parts  []part
	in     int                // values of a row
	kind   kernels.WeightType // type of the weights on the device
}

// part is the loaded part of a tensor.
type part struct {
	model.Tensor
	rows, columns span
	width         int // of its rows
}

// kindOf returns the type in which kernels multiply the matrix made of parts. fp8 stays
// fp8, with scales of rows if these suffice. It becomes bf16 next to other types, in an
// embedding table, and if a cut divides the blocks of its scales.
func kindOf(parts []part, role model.Role) kernels.WeightType {
	kind := kernels.E4M3
	for _, p := range parts {
		switch {
		case p.DType == safetensors.Q8_0:
			return kernels.Q8_0
		case p.DType != safetensors.F8_E4M3 || role == model.RoleEmbed || p.columns.n%kind.Columns() != 0:
			return kernels.BF16
		case p.Scales.Across > 1 && p.columns.from%kernels.E4M3Columns != 0:
			return kernels.BF16
		case p.Scales.Across > 1:
			kind = kernels.E4M3Blocks
		}
	}
	return kind
}

// bytes returns the memory of the weights and their scales.
func (t *target) bytes() (weights, scales int64) {
	rows := 0
	for _, p := range t.parts {
		rows += p.rows.n
	}
	return t.kind.Bytes(rows, t.in)
}

func elems(t model.Tensor) int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// reader collects what is to be loaded. It keeps the first error.
type reader struct {
	model       *model.Model
	rank, ranks int
	targets     []target
	rounded     map[string]bool // types of matrices that become bf16
	err         error
}

// need adds a required matrix: the tensors of all roles, for each expert.
func (r *reader) need(m *matrix, layer, experts int, c sharing, roles ...model.Role) {
	t := target{matrix: m}
	for e := range experts {
		for _, role := range roles {
			r.part(&t, role, layer, e, c)
		}
	}
	if len(t.parts) < experts*len(roles) {
		r.fail(fmt.Errorf("layer %d lacks a tensor of roles %v", layer, roles))
		return
	}
	r.add(t, roles[0])
}

// vector adds a vector of tensors. The model must have all of them or none.
func (r *reader) vector(address *uint64, layer int, c sharing, roles ...model.Role) {
	t := target{vector: address}
	for _, role := range roles {
		r.part(&t, role, layer, 0, c)
	}
	switch {
	case len(t.parts) == 0:
	case len(t.parts) < len(roles):
		r.fail(fmt.Errorf("layer %d has only some of the tensors that are loaded with %s", layer, t.parts[0].Name))
	default:
		r.add(t, roles[0])
	}
}

// part adds a rank's part of a tensor, if the model has the tensor.
func (r *reader) part(t *target, role model.Role, layer, expert int, c sharing) {
	tensor, ok := r.model.Expert(role, layer, expert)
	if !ok {
		return
	}
	p := part{Tensor: tensor, width: 1}
	if t.matrix != nil {
		p.width = tensor.Shape[len(tensor.Shape)-1]
	}
	p.rows, p.columns = c.of(elems(tensor)/p.width, p.width, r.rank, r.ranks)
	t.parts = append(t.parts, p)
}

// add adds a target, whose tensors the kernels must be able to use together.
func (r *reader) add(t target, role model.Role) {
	first := t.parts[0]
	t.in = first.columns.n
	if t.matrix != nil {
		t.kind = kindOf(t.parts, role)
	}
	for _, p := range t.parts {
		if t.matrix != nil && t.kind == kernels.BF16 && p.DType != safetensors.BF16 {
			r.rounded[string(p.DType)] = true
		}
		switch p.DType {
		case safetensors.BF16, safetensors.F16, safetensors.F32:
		case safetensors.Q8_0, safetensors.F8_E4M3:
			if t.vector != nil {
				r.refuse("%s is %s, kernels know norms and biases of bf16", p.Name, p.DType)
			}
		default:
			r.refuse("%s is %s, kernels know bf16, fp8 and Q8_0", p.Name, p.DType)
		}
		if (p.DType == safetensors.Q8_0) != (first.DType == safetensors.Q8_0) {
			r.refuse("%s is %s and %s %s: kernels multiply them as one", first.Name, first.DType, p.Name, p.DType)
		}
	}
	if of := t.kind.Columns(); t.matrix != nil && t.in%of != 0 {
		rank := ""
		if t.in < first.width {
			rank = fmt.Sprintf(" for each of %d ranks", r.ranks)
		}
		r.refuse("rows of %s have %d values%s, kernels know multiples of %d", first.Name, t.in, rank, of)
	}
	r.targets = append(r.targets, t)
}

func (r *reader) refuse(format string, args ...any) {
	r.fail(fmt.Errorf("%w: %s; a CPU device (cpu:0) computes it", ErrUnsupported, fmt.Sprintf(format, args...)))
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// bytes returns the memory that an arena for the targets needs.
func (r *reader) bytes() (n int64) {
	for i := range r.targets {
		weights, scales := r.targets[i].bytes()
		n += device.Aligned(weights) + device.Aligned(scales)
	}
	return n
}
