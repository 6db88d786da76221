package model

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model/ggufmodel"
	"github.com/dynctl/dynctl/internal/model/quantcache"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// weightSet is the weights of a checkpoint, by their names in a Hugging Face folder,
// independent of the file format.
type weightSet interface {
	// Lookup describes a tensor; Data may be missing.
	Lookup(name string) (Tensor, bool)
	// Tensor returns a tensor with its data.
	Tensor(name string) (Tensor, bool)
	Names() []string
	// Stored returns a tensor's type and size in its file.
	Stored(name string) (dtype string, bytes int64)
	// Fresh returns a tensor for a single reading. It keeps nothing in memory for the
	// next.
	Fresh(name string) (Tensor, bool)
	// CopiedBytes returns the memory that a tensor takes beside the mapping.
	CopiedBytes(name string) int64
	// Types returns the supported types, for errors.
	Types() string
	// Bytes returns the size of all files.
	Bytes() int64
	Warnings() []string
	// Fingerprint writes the data that identifies the weights.
	Fingerprint(w io.Writer) error
	// Origins returns the files.
	Origins() []quantcache.Origin
	// WillNeed asks the system to read the files ahead.
	WillNeed()
	CheckSize() error
	Close() error
}

// fileSet is the weights of a GGUF file, and of its mmproj file.
type fileSet struct{ *ggufmodel.Checkpoint }

func (fileSet) Types() string { return "F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K" }

func (s fileSet) Origins() []quantcache.Origin {
	var list []quantcache.Origin
	for _, f := range s.Opened() {
		list = append(list, quantcache.Origin{Name: f.Name(), Size: f.Size(), Modified: f.Modified().UnixNano()})
	}
	return list
}

// folderSet is the weights of a folder of safetensors.
type folderSet struct {
	*safetensors.Set
	scales map[string]*safetensors.Scales // of fp8 weights that have scales, by name
}

func newFolderSet(set *safetensors.Set) folderSet {
	s := folderSet{set, map[string]*safetensors.Scales{}}
	for _, name := range set.Names() {
		if t, _ := set.Tensor(name); t.DType == safetensors.F8_E4M3 {
			if scales, err := findScales(t, set.Tensor); err == nil { // an error is reported when the tensor is needed
				s.scales[name] = scales
			}
		}
	}
	return s
}

func (folderSet) Types() string { return "F32, F16, BF16, F8_E4M3 with scales" }

func (s folderSet) Tensor(name string) (Tensor, bool) {
	t, ok := s.Set.Tensor(name)
	t.Scales = s.scales[name]
	return t, ok
}

func (s folderSet) Lookup(name string) (Tensor, bool) { return s.Tensor(name) }

func (s folderSet) Fresh(name string) (Tensor, bool) { return s.Tensor(name) }

func (s folderSet) Origins() []quantcache.Origin {
	var list []quantcache.Origin
	for _, f := range s.Files() {
		list = append(list, quantcache.Origin{Name: f.Name(), Size: f.Size(), Modified: f.Modified().UnixNano()})
	}
	return list
}

func (s folderSet) Stored(name string) (dtype string, bytes int64) {
	t, _ := s.Tensor(name)
	return string(t.DType), int64(len(t.Data))
}

func (folderSet) CopiedBytes(string) int64 { return 0 }

func (s folderSet) Bytes() int64 {
	var n int64
	for _, f := range s.Files() {
		n += f.Size()
	}
	return n
}

// TensorInfo describes a tensor of a checkpoint.
type TensorInfo struct {
	Tensor        // without Data
	Stored string // its type in the file; Type is the engines'
	Bytes  int64  // in the file
	Used   bool   // the configuration needs it
}

// Inventory describes all tensors, used or not, in order of their names.
func (m *Model) Inventory() []TensorInfo {
	if m.set == nil {
		return nil
	}
	var list []TensorInfo
	for _, name := range m.set.Names() {
		t, _ := m.set.Lookup(name)
		t.Data = nil
		stored, bytes := m.set.Stored(name)
		list = append(list, TensorInfo{t, stored, bytes, m.wanted[name]})
	}
	return list
}

// StoredType returns the type in which most of the weights are stored, as in
// [TensorInfo.Stored]: "F32", "BF16", "Q8_0"; "" if there are none.
func (m *Model) StoredType() string {
	var most string
	weights := make(map[string]int64)
	for _, t := range m.Inventory() {
		if !t.Used {
			continue
		}
		n := int64(1)
		for _, size := range t.Shape {
			n *= int64(size)
		}
		weights[t.Stored] += n
		if weights[t.Stored] > weights[most] {
			most = t.Stored
		}
	}
	return most
}

// KVDType returns the default type of keys and values for the weights: "f32" for
// unquantized float32 weights, and "bf16" for all others.
func (m *Model) KVDType() string {
	if m.quantize == "" && m.StoredType() == "F32" {
		return "f32"
	}
	return "bf16"
}

// Format returns the file format of the weights: "safetensors" or "gguf v3"; "" if it is
// unknown.
func (m *Model) Format() string { return m.format }

// Quantization returns the format that [Options] asked for, "" for none.
func (m *Model) Quantization() string { return m.quantize }

// WeightType returns the type of the weights for users, in lower case: the format they
// were quantized to, or else the type of most stored weights: "q8_0", "bf16".
func (m *Model) WeightType() string {
	if m.quantize != "" {
		return m.quantize
	}
	counts := map[string]int64{}
	for name := range m.wanted {
		t, ok := m.set.Lookup(name)
		if !ok {
			continue
		}
		n := int64(1)
		for _, d := range t.Shape {
			n *= int64(d)
		}
		counts[strings.ToLower(string(t.DType))] += n
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if best == "" || counts[name] > counts[best] {
			best = name
		}
	}
	return best
}

// Warnings returns oddities that do not prevent loading.
func (m *Model) Warnings() []string { return m.warnings }

// WeightBytes returns the size of all weight files.
func (m *Model) WeightBytes() int64 {
	if m.set == nil {
		return 0
	}
	return m.set.Bytes()
}

// CopiedBytes returns the memory that the weights take beside their mapped files once all
// of them were read: tensors whose rows a GGUF file stores in another order, and vectors
// that it stores in another form. It is 0 for safetensors.
func (m *Model) CopiedBytes() int64 {
	var n int64
	for name := range m.wanted {
		n += m.set.CopiedBytes(name)
	}
	return n
}

// Check returns [safetensors.ErrChanged] if a weight file no longer has the size with
// which it was mapped.
func (m *Model) Check() error {
	if m.set == nil {
		return fmt.Errorf("%w: there are none", ErrWeights)
	}
	return m.set.CheckSize()
}

// Close unmaps the weights. No tensor may be read afterwards. Further calls do nothing.
func (m *Model) Close() error {
	if m.set == nil {
		return nil
	}
	return m.set.Close()
}
