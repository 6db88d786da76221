package tensorfile

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recorded is what scripts/reference/tensors.py writes.
type recorded struct {
	Files []struct {
		File, Refused string
		Tensors       []struct {
			Name, DType, Data string
			Shape             []int
		}
	}
}

func torchFiles(t testing.TB) recorded {
	t.Helper()
	content, err := os.ReadFile("testdata/torch.json")
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(content, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Files) < 30 {
		t.Fatalf("%d files are recorded", len(r.Files))
	}
	return r
}

func file(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// All tensors have the type, the shape and the bytes that torch has.
func TestReadEqualsTorch(t *testing.T) {
	for _, f := range torchFiles(t).Files {
		t.Run(f.File, func(t *testing.T) {
			got, err := Read(file(t, f.File), Limits{})
			if f.Refused != "" {
				if !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), f.Refused) {
					t.Errorf("%v, want it refused with %q", err, f.Refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tensors := append([]Tensor{got.Embeddings}, got.Auxiliary...)
			if len(tensors) != len(f.Tensors) {
				t.Fatalf("%d tensors, want %d", len(tensors), len(f.Tensors))
			}
			for _, want := range f.Tensors {
				i := slices.IndexFunc(tensors, func(t Tensor) bool { return t.Name == want.Name })
				if i < 0 {
					t.Fatalf("no tensor %q", want.Name)
				}
				if have := tensors[i]; string(have.DType) != want.DType || !slices.Equal(have.Shape, want.Shape) || hex.EncodeToString(have.Data) != want.Data {
					t.Errorf("%q: %s %v %x, want %s %v %s", want.Name, have.DType, have.Shape, have.Data, want.DType, want.Shape, want.Data)
				}
			}
			if name := got.Embeddings.Name; name != "" && name != MainName {
				t.Errorf("the embeddings are called %q", name)
			}
			if !slices.IsSortedFunc(got.Auxiliary, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) }) {
				t.Error("auxiliary tensors are not sorted")
			}
		})
	}
}

func TestReadRefusesTruncatedFiles(t *testing.T) {
	data := file(t, "dict.pt")
	for n := range len(data) {
		if _, err := Read(data[:n], Limits{}); !errors.Is(err, ErrFormat) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(data), err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, r := range torchFiles(f).Files {
		f.Add(file(f, r.File))
	}
	f.Add(safetensorsFile(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 1 << 16
		check(t, data, Limits{Bytes: limit})
	})
}

// FuzzProgram tries programs in an archive that is otherwise sound.
func FuzzProgram(f *testing.F) {
	for _, r := range torchFiles(f).Files {
		if a, err := openArchive(file(f, r.File)); err == nil {
			f.Add(a["data.pkl"])
		}
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		check(t, torchFile(t, program, make([]byte, 96)), Limits{Bytes: 1 << 16})
	})
}

// check reads a file and holds the result to what every result must be.
func check(t *testing.T, data []byte, l Limits) {
	got, err := Read(data, l)
	if err != nil {
		if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrLimit) {
			t.Errorf("%v matches no error of this package", err)
		}
		return
	}
	total := 0
	for _, tensor := range append([]Tensor{got.Embeddings}, got.Auxiliary...) {
		n := tensor.DType.Bytes(1)
		for _, d := range tensor.Shape {
			n *= d
		}
		if n != len(tensor.Data) {
			t.Errorf("%q: %s of %v in %d bytes", tensor.Name, tensor.DType, tensor.Shape, len(tensor.Data))
		}
		total += n
	}
	if total > l.Bytes {
		t.Errorf("%d bytes of tensors", total)
	}
}
