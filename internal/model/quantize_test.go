package model_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
	"github.com/dynctl/dynctl/internal/patience"
)

// quantized opens a model until the end of the test and prepares it; log gets what is
// told.
func quantized(t testing.TB, path, format, dir string, log *bytes.Buffer) *model.Model {
	t.Helper()
	opts, cache := model.Options{Quantize: format}, model.Cache{Dir: dir}
	if log != nil {
		opts.Log = slog.New(slog.NewTextHandler(log, nil))
		cache.Log = opts.Log
	}
	m, err := model.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := m.Prepare(t.Context(), cache); err != nil {
		t.Fatal(err)
	}
	return m
}

// sameAsRule compares each role's values with quantizing those of the same model as it
// is stored, row by row.
func sameAsRule(t *testing.T, got, stored *model.Model, format string) {
	t.Helper()
	made := 0
	for role := model.RoleEmbed; role <= model.RoleExpertDown; role++ {
		for layer := range stored.Config().Layers {
			for e := range max(stored.Config().MoE.Experts, 1) {
				a, has := got.Expert(role, layer, e)
				b, ok := stored.Expert(role, layer, e)
				if has != ok {
					t.Fatalf("role %d of layer %d, expert %d: %v, want %v", role, layer, e, has, ok)
				}
				if !ok {
					continue
				}
				want := b.DType
				switch {
				case len(b.Shape) < 2 || role == model.RoleRouter || b.Shape[1]%32 != 0:
				case role == model.RoleEmbed || role == model.RoleHead:
					want = safetensors.Q8_0
				default:
					want = safetensors.DType(strings.ToUpper(format))
				}
				if a.DType != want || !slices.Equal(a.Shape, b.Shape) {
					t.Errorf("%s is %s of %v, want %s of %v", a.Name, a.DType, a.Shape, want, b.Shape)
					continue
				}
				values := modeltest.Floats(t, b)
				if want != b.DType {
					made++
					kind, _ := gguf.ParseType(string(want))
					blocks := make([]byte, len(values)/32*kind.BlockBytes())
					if err := gguf.Quantize(blocks, kind, values); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(a.Data, blocks) {
						t.Errorf("%s has other blocks", a.Name)
					}
				} else if !bytes.Equal(a.Data, b.Data) {
					t.Errorf("%s has changed", a.Name)
				}
			}
		}
	}
	if made == 0 {
		t.Error("nothing was quantized")
	}
}

func TestQuantizeFamilies(t *testing.T) {
	patience.OneGoroutine(t)
	for name, spec := range modeltest.Families() {
		dir := modeltest.Generate(t, spec)
		stored := openGGUF(t, dir)
		for _, format := range []string{"q8_0", "q4_0"} {
			t.Run(name+" "+format, func(t *testing.T) {
				var log bytes.Buffer
				m := quantized(t, dir, format, t.TempDir(), &log)
				sameAsRule(t, m, stored, format)
				if m.Quantization() != format || m.WeightType() != format || m.Digest() == stored.Digest() || len(m.Digest()) != 64 {
					t.Errorf("format %q, weights %q, digest %s of %s", m.Quantization(), m.WeightType(), m.Digest(), stored.Digest())
				}
				if m.CopiedBytes() != 0 {
					t.Errorf("%d bytes are copied", m.CopiedBytes())
				}
				for _, spec := range m.Tensors() {
					tensor, err := m.Tensor(spec.Name)
					if err != nil || m.TensorBytes(spec.Name) != int64(len(tensor.Data)) {
						t.Errorf("%s has %d bytes, %d are told; %v", spec.Name, len(tensor.Data), m.TensorBytes(spec.Name), err)
					}
				}
				// Sizes of 20, 24 and 48 columns are not whole blocks: that is told, with names.
				for _, spec := range m.Tensors() {
					if len(spec.Shape) < 2 || spec.Role == model.RoleRouter || spec.Role.Vision() {
						continue
					}
					if kept := spec.Shape[len(spec.Shape)-1]%32 != 0; kept != strings.Contains(log.String(), spec.Name) {
						t.Errorf("%s of shape %v: told is %v", spec.Name, spec.Shape, !kept)
					}
				}
			})
		}
	}
}

// TestQuantizeGGUF: a file of plain types gives what the folder gives that it was made
// of, reordered rows included; what is made for it is not kept in memory.
func TestQuantizeGGUF(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{Family: "llama", KVHeads: 2, Hidden: 64, FFN: 96, Vocab: 300})
	for _, kind := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16} {
		t.Run(kind.String(), func(t *testing.T) {
			path := modeltest.GGUF(t, dir, kind)
			m := quantized(t, path, "q8_0", t.TempDir(), nil)
			sameAsRule(t, m, openGGUF(t, path), "q8_0")
			if m.CopiedBytes() != 0 {
				t.Errorf("%d bytes are copied", m.CopiedBytes())
			}
			folder := quantized(t, modeltest.Quantized(t, dir, kind), "q8_0", t.TempDir(), nil)
			for role := model.RoleEmbed; role <= model.RoleDown; role++ {
				a, _ := m.Weight(role, 0)
				b, _ := folder.Weight(role, 0)
				if !bytes.Equal(a.Data, b.Data) {
					t.Errorf("%s differs", b.Name)
				}
			}
		})
	}
}

func TestWeightType(t *testing.T) {
	for want, spec := range map[string]modeltest.Spec{"f32": {Vocab: 300}, "bf16": {Vocab: 300, DType: "bf16"}, "f16": {Vocab: 300, DType: "f16"}} {
		dir := modeltest.Generate(t, spec)
		if got := openGGUF(t, dir).WeightType(); got != want {
			t.Errorf("weights are %s, want %s", got, want)
		}
		if got := openGGUF(t, modeltest.GGUF(t, dir, gguf.Q4_0)).WeightType(); got != "q4_0" {
			t.Errorf("weights are %s, want q4_0", got)
		}
	}
}

// cacheFile is the only file of a folder.
func cacheFile(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Fatalf("the folder has %v, want one file", entries)
	}
	return filepath.Join(dir, entries[0].Name())
}

// TestSecondStart takes up the file of the first one, whoever closed it meanwhile.
func TestSecondStart(t *testing.T) {
	dir, cache := modeltest.Generate(t, modeltest.Spec{Vocab: 300}), t.TempDir()
	var first, second bytes.Buffer
	a := quantized(t, dir, "q4_0", cache, &first)
	path := cacheFile(t, cache)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(first.String(), "quantizing weights") || !strings.Contains(first.String(), "weights=q4_0") || !strings.Contains(first.String(), path) {
		t.Errorf("told was %s", first.String())
	}
	b := quantized(t, dir, "q4_0", cache, &second)
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) || second.Len() > 0 {
		t.Errorf("the second start has made the file again: %s", second.String())
	}
	if a.Digest() != b.Digest() {
		t.Errorf("digests %s and %s", a.Digest(), b.Digest())
	}
	if err := b.Prepare(t.Context(), model.Cache{Dir: filepath.Join(cache, "elsewhere")}); err != nil {
		t.Errorf("a second Prepare: %v", err)
	}
	// Another format has another file and another digest.
	c := quantized(t, dir, "q8_0", cache, nil)
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 2 || c.Digest() == a.Digest() {
		t.Errorf("files %v, %v; digest %s", entries, err, c.Digest())
	}
}

// TestUnusableFileIsMadeAgain damages the file, or gives it to a checkpoint that was
// changed in place. That is told.
func TestUnusableFileIsMadeAgain(t *testing.T) {
	for name, damage := range map[string]func(path, dir string) error{
		"empty": func(path, _ string) error { return os.Truncate(path, 0) },
		"cut":   func(path, _ string) error { return os.Truncate(path, 5000) },
		"one bit": func(path, _ string) error {
			content, err := os.ReadFile(path)
			if err == nil {
				content[len(content)-100] ^= 4
				err = os.WriteFile(path, content, 0o600)
			}
			return err
		},
		"another file": func(path, _ string) error { return os.WriteFile(path, []byte("something else"), 0o600) },
		"checkpoint changed in the middle": func(_, dir string) error {
			weights := filepath.Join(dir, safetensors.SingleName)
			content, err := os.ReadFile(weights)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint32(content[len(content)/2&^3:], math.Float32bits(0.75))
			later := time.Now().Add(time.Minute)
			return errors.Join(os.WriteFile(weights, content, 0o644), os.Chtimes(weights, later, later))
		},
	} {
		t.Run(name, func(t *testing.T) {
			// Large enough that the digest does not see the middle.
			dir, cache := modeltest.Generate(t, modeltest.Spec{Family: "qwen3", Layers: 2, Vocab: 300, Hidden: 128, FFN: 256}), t.TempDir()
			first := quantized(t, dir, "q8_0", cache, nil)
			path := cacheFile(t, cache)
			// A mapped file that is cut cannot be read any more: that one is done.
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			if err := damage(path, dir); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			m := quantized(t, dir, "q8_0", cache, &log)
			if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "made again") || !strings.Contains(log.String(), path) {
				t.Errorf("told was %s", log.String())
			}
			sameAsRule(t, m, openGGUF(t, dir), "q8_0")
			if again := cacheFile(t, cache); again != path || m.Digest() != first.Digest() {
				t.Errorf("file %s, digest %s; want %s, %s", again, m.Digest(), path, first.Digest())
			}
		})
	}
}

func TestQuantizeRefuses(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{Vocab: 300})
	open := func(path, format string) error {
		m, err := model.Open(path, model.Options{Quantize: format})
		if err == nil {
			t.Error("it was opened")
			_ = m.Close()
		}
		return err
	}
	if err := open(dir, "q5_1"); !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), `"q5_1"; known are q8_0, q4_0`) {
		t.Errorf("unknown format: %v", err)
	}
	if err := open(modeltest.GGUF(t, dir, gguf.Q8_0), "q8_0"); !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), "is Q8_0 already") {
		t.Errorf("quantized already: %v", err)
	}
	odd := modeltest.Generate(t, modeltest.Spec{Family: "llama", Vocab: 300, Hidden: 24, Heads: 2, HeadDim: 12, FFN: 40})
	if err := open(odd, "q8_0"); !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), "no matrix has rows of whole blocks") {
		t.Errorf("no whole blocks: %v", err)
	}
	// Of what cannot be made nothing is left.
	prepare := func(t *testing.T, ctx context.Context, path, cache string) error {
		m, err := model.Open(path, model.Options{Quantize: "q8_0"})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if _, ok := m.Weight(model.RoleQ, 0); ok {
			t.Error("weights can be read before they are there")
		}
		err = m.Prepare(ctx, model.Cache{Dir: cache})
		if entries, _ := os.ReadDir(cache); len(entries) > 0 {
			t.Errorf("left behind: %v", entries)
		}
		return err
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var pathError *fs.PathError
	if err := prepare(t, t.Context(), dir, filepath.Join(file, "x")); !errors.As(err, &pathError) || !strings.Contains(err.Error(), dir) {
		t.Errorf("no folder can be made: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if err := prepare(t, ctx, dir, t.TempDir()); !errors.Is(err, stop) {
		t.Errorf("err = %v, want the cause of the context", err)
	}
	bad := modeltest.Generate(t, modeltest.Spec{Vocab: 300})
	weights := filepath.Join(bad, safetensors.SingleName)
	content, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	m := openGGUF(t, bad)
	up, _ := m.Weight(model.RoleUp, 1)
	at := bytes.Index(content, up.Data[:64])
	binary.LittleEndian.PutUint32(content[at+4*(up.Shape[1]*2+5):], math.Float32bits(float32(math.NaN())))
	if err := os.WriteFile(weights, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := prepare(t, t.Context(), bad, t.TempDir()); !errors.Is(err, gguf.ErrValue) || !strings.Contains(err.Error(), up.Name) || !strings.Contains(err.Error(), "row 2:") {
		t.Errorf("a NaN: %v", err)
	}
}

// TestPrepareAtOnce: several models, as several processes have them, and one file. The
// others wait for the one that makes it.
func TestPrepareAtOnce(t *testing.T) {
	dir, cache := modeltest.Generate(t, modeltest.Spec{Vocab: 300}), t.TempDir()
	var made sync.Map
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			m, err := model.Open(dir, model.Options{Quantize: "q8_0"})
			if err != nil {
				t.Error(err)
				return
			}
			defer m.Close()
			var log bytes.Buffer
			if err := m.Prepare(t.Context(), model.Cache{Dir: cache, Log: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
				t.Error(err)
			}
			if log.Len() > 0 {
				made.Store(i, log.String())
			}
			if q, ok := m.Weight(model.RoleQ, 0); !ok || q.DType != safetensors.Q8_0 {
				t.Errorf("queries are %s", q.DType)
			}
		})
	}
	wg.Wait()
	n := 0
	made.Range(func(_, text any) bool {
		n++
		if n > 1 {
			t.Errorf("made again: %s", text)
		}
		return true
	})
	if n == 0 {
		t.Error("nobody has made it")
	}
	cacheFile(t, cache)
}

// TestPrepareProgress tells how far it is, up to the end.
func TestPrepareProgress(t *testing.T) {
	m, err := model.Open(modeltest.Generate(t, modeltest.Spec{Vocab: 300}), model.Options{Quantize: "q8_0"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var told []float64
	if err := m.Prepare(t.Context(), model.Cache{Dir: t.TempDir(), Progress: func(done float64) { told = append(told, done) }}); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(told) || len(told) < 2 || told[0] <= 0 || told[len(told)-1] > 1 || told[len(told)-1] < 0.8 {
		t.Errorf("progress %v", told)
	}
}

func ExampleModel_Prepare() {
	dir, err := os.MkdirTemp("", "models")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	spec := model.Synthetic{Family: "qwen3", Hidden: 128, FFN: 384, DType: "bf16"}
	if err := spec.Write(dir); err != nil {
		fmt.Println(err)
		return
	}
	m, err := model.Open(dir, model.Options{Quantize: "q8_0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	if err := m.Prepare(context.Background(), model.Cache{Dir: filepath.Join(dir, "quantized")}); err != nil {
		fmt.Println(err)
		return
	}
	down, _ := m.Weight(model.RoleDown, 0)
	fmt.Println(down.DType, down.Shape, len(down.Data))
	// Output: Q8_0 [128 384] 52224
}
