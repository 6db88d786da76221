package quantcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/mapped"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// contents has tensors of one piece, of several, and of rows longer than a piece.
func contents() Contents {
	return Contents{
		Source: "0123456789abcdef0123", Format: "q4_0", Files: []Origin{{"model.safetensors", 77, 5}},
		Tensors: []Tensor{
			{"head", safetensors.Q8_0, []int{3, 32}},
			{"experts", safetensors.Q4_0, []int{3, 700, 1024}},
			{"wide", safetensors.Q8_0, []int{2, 1 << 20}},
		},
	}
}

// value is a byte of a tensor, by its place.
func value(tensor int, at int64) byte { return byte(at*7 + at>>8 + int64(tensor)) }

// fill writes all tensors.
func fill(w *Writer) error {
	for i, t := range w.header.Tensors {
		_, rowBytes, _ := t.measure()
		err := w.Fill(context.Background(), i, func(dst []byte, first, rows int) error {
			if len(dst) != rows*rowBytes {
				return errors.New("a piece has another size than its rows")
			}
			for j := range dst {
				dst[j] = value(i, int64(first*rowBytes+j))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return w.Commit()
}

func write(t testing.TB, path string, c Contents) {
	t.Helper()
	w, err := Create(path, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(w); err != nil {
		t.Fatal(err)
	}
	w.Abort() // changes nothing
}

func TestWriteAndOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "x.weights")
	c := contents()
	if _, err := Open(t.Context(), path, c); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("there is none yet: %v", err)
	}
	write(t, path, c)
	f, err := Open(t.Context(), path, c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, want := range c.Tensors {
		got, ok := f.Tensor(want.Name)
		rows, rowBytes, _ := want.measure()
		if !ok || got.DType != want.DType || len(got.Data) != rows*rowBytes || got.Offset%tensorStep != 0 || got.File != "x.weights" {
			t.Fatalf("%s is %s of %v with %d bytes at %d in %s", want.Name, got.DType, got.Shape, len(got.Data), got.Offset, got.File)
		}
		for j, b := range got.Data {
			if b != value(i, int64(j)) {
				t.Fatalf("%s: byte %d is %d, want %d", want.Name, j, b, value(i, int64(j)))
			}
		}
	}
	if _, ok := f.Tensor("absent"); ok {
		t.Error("a tensor that nobody wrote")
	}
	if info, err := os.Stat(path); err != nil || info.Size() != f.Size() || info.Mode().Perm() != 0o600 {
		t.Errorf("file %v, %v", info, err)
	}
	only(t, path)
	// Others than are asked for.
	for name, change := range map[string]func(c *Contents){
		"checkpoint":   func(c *Contents) { c.Source = "other" },
		"format":       func(c *Contents) { c.Format = "q8_0" },
		"changed file": func(c *Contents) { c.Files = []Origin{{"model.safetensors", 77, 6}} },
		"file more":    func(c *Contents) { c.Files = append(c.Files, Origin{"b", 1, 1}) },
		"tensors":      func(c *Contents) { c.Tensors = c.Tensors[:2] },
		"shape":        func(c *Contents) { c.Tensors[0].Shape = []int{3, 64} },
	} {
		other := contents()
		change(&other)
		if _, err := Open(t.Context(), path, other); !errors.Is(err, ErrOther) {
			t.Errorf("another %s: err = %v, want ErrOther", name, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := Open(ctx, path, c); !errors.Is(err, stop) {
		t.Errorf("err = %v, want the cause of the context", err)
	}
}

// only fails when a folder has more than one file.
func only(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// TestDamage changes a finished file in one place each.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.weights")
	c := contents()
	c.Tensors = c.Tensors[:2]
	write(t, path, c)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := parseHeader(bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	for _, tt := range []struct {
		name   string
		damage func(b []byte) []byte
		kind   error
		want   string
	}{
		{"nothing", func(b []byte) []byte { return b }, nil, ""},
		{"empty", func([]byte) []byte { return nil }, ErrDamaged, "ends after 0 bytes"},
		{"cut in the header", func(b []byte) []byte { return b[:39] }, ErrDamaged, "ends after 39 bytes"},
		{"cut in the table", func(b []byte) []byte { return b[:200] }, ErrDamaged, "200 bytes cannot hold"},
		{"cut by a byte", func(b []byte) []byte { return b[:len(b)-1] }, ErrDamaged, "its header says"},
		{"longer by a byte", func(b []byte) []byte { return append(b, 0) }, ErrDamaged, "its header says"},
		{"another file", func(b []byte) []byte { copy(b, "GGUF"); return b }, ErrDamaged, "does not begin"},
		{"another version", func(b []byte) []byte { b[8] = 2; return b }, ErrOther, "version 2, this program has 1"},
		{"checksum of the table", func(b []byte) []byte { b[13] ^= 1; return b }, ErrDamaged, "checksum of its table"},
		{"table", func(b []byte) []byte { b[preamble+9] ^= 1; return b }, ErrDamaged, "checksum of its table"},
		{"checksum of a piece", func(b []byte) []byte { b[lastSum(h)] ^= 1; return b }, ErrDamaged, "checksum of its table"},
		{"first byte of the data", func(b []byte) []byte { b[h.dataStart] ^= 1; return b }, ErrDamaged, "a checksum is wrong"},
		{"last byte of the data", func(b []byte) []byte { b[len(b)-1] ^= 0x80; return b }, ErrDamaged, "a checksum is wrong"},
		{"a hole in the data", func(b []byte) []byte { clear(b[h.dataStart+4096 : h.dataStart+8192]); return b }, ErrDamaged, "a checksum is wrong"},
		{"huge table", func(b []byte) []byte { le.PutUint64(b[16:], 1<<62); return b }, ErrDamaged, "cannot hold"},
		{"huge pieces", func(b []byte) []byte { le.PutUint64(b[24:], 1<<63); return b }, ErrDamaged, "cannot hold"},
		{"huge data", func(b []byte) []byte { le.PutUint64(b[32:], 1<<63); return b }, ErrDamaged, "cannot hold"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(path, tt.damage(bytes.Clone(good)), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Open(t.Context(), path, c)
			if err == nil {
				err = f.Close()
			}
			if !errors.Is(err, tt.kind) || tt.want != "" && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path)) {
				t.Errorf("err = %v, want %v with %q", err, tt.kind, tt.want)
			}
		})
	}
	if _, err := Open(t.Context(), filepath.Dir(path), c); !errors.Is(err, ErrDamaged) || !errors.Is(err, mapped.ErrNotRegular) {
		t.Errorf("a folder: %v", err)
	}
}

// lastSum returns the offset of the last checksum of a piece.
func lastSum(h *header) int64 {
	head, err := h.encode()
	if err != nil {
		panic(err)
	}
	return int64(len(head)) - 1
}

// TestTables gives tables that are well formed and wrong, under right checksums.
func TestTables(t *testing.T) {
	for name, table := range map[string]string{
		"not JSON":         `{`,
		"unknown field":    `{"source":"s","format":"q8_0","files":[],"tensors":[],"more":1}`,
		"plain type":       `{"tensors":[{"name":"a","dtype":"F32","shape":[2,32]}]}`,
		"unknown type":     `{"tensors":[{"name":"a","dtype":"Q9","shape":[2,32]}]}`,
		"vector":           `{"tensors":[{"name":"a","dtype":"Q8_0","shape":[32]}]}`,
		"part of a block":  `{"tensors":[{"name":"a","dtype":"Q8_0","shape":[2,33]}]}`,
		"nothing":          `{"tensors":[{"name":"a","dtype":"Q8_0","shape":[0,32]}]}`,
		"negative":         `{"tensors":[{"name":"a","dtype":"Q8_0","shape":[-1,32]}]}`,
		"overflow":         `{"tensors":[{"name":"a","dtype":"Q8_0","shape":[4611686018427387904,4611686018427387904,32]}]}`,
		"endless rows":     `{"tensors":[{"name":"a","dtype":"Q8_0","shape":[2,9223372036854775776]}]}`,
		"more than it has": `{"tensors":[{"name":"a","dtype":"Q8_0","shape":[1099511627776,32]}]}`,
		"less than it has": `{"tensors":[{"name":"a","dtype":"Q8_0","shape":[1,32]}]}`,
		"twice":            `{"tensors":[{"name":"a","dtype":"Q8_0","shape":[1,32]},{"name":"a","dtype":"Q8_0","shape":[1,32]}]}`,
	} {
		raw := assemble([]byte(table), 1, 68)
		if _, err := parseHeader(bytes.NewReader(raw), int64(len(raw))); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: err = %v, want ErrDamaged", name, err)
		}
	}
	raw := assemble([]byte(`{"source":"s","format":"q8_0","files":[],"tensors":[{"name":"a","dtype":"Q8_0","shape":[2,32]}]}`), 1, 68)
	if _, err := parseHeader(bytes.NewReader(raw), int64(len(raw))); err != nil {
		t.Errorf("a right one: %v", err)
	}
}

// assemble makes a file around a table.
func assemble(table []byte, pieces, data int) []byte {
	le := binary.LittleEndian
	out := append([]byte(magic), make([]byte, 8)...)
	le.PutUint32(out[8:], version)
	for _, n := range []int{len(table), pieces, data} {
		out = le.AppendUint64(out, uint64(n))
	}
	out = append(append(out, table...), make([]byte, 4*pieces)...)
	le.PutUint32(out[12:], crc32.Checksum(out[16:], castagnoli))
	return append(out, make([]byte, startOf(int64(len(table)), int64(pieces))-int64(len(out))+int64(data))...)
}

// FuzzParseHeader reads files, and tables under right checksums.
func FuzzParseHeader(f *testing.F) {
	h, err := newHeader(Contents{Source: "s", Format: "q8_0", Files: []Origin{{"a", 1, 2}}, Tensors: []Tensor{{"a", safetensors.Q8_0, []int{2, 32}}}})
	if err != nil {
		f.Fatal(err)
	}
	head, err := h.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(head, make([]byte, h.dataStart-int64(len(head))+h.size)...), uint16(0), uint16(0))
	f.Add([]byte(`{"tensors":[{"name":"a","dtype":"Q4_0","shape":[2,2,64]}]}`), uint16(1), uint16(144))
	f.Add([]byte(`{"tensors":[{"name":"a","dtype":"Q6_K","shape":[1,256]},{"name":"b","dtype":"Q8_0","shape":[9,32]}]}`), uint16(2), uint16(562))
	f.Fuzz(func(t *testing.T, raw []byte, pieces, data uint16) {
		if pieces > 0 {
			raw = assemble(raw, int(pieces), int(data))
		}
		h, err := parseHeader(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrOther) {
				t.Fatalf("err = %v", err)
			}
			return
		}
		// What was accepted lies within the file, in order, without overlaps.
		end := int64(0)
		for i, p := range h.pieces {
			if p.at < end || p.bytes <= 0 || h.dataStart+p.at+p.bytes > int64(len(raw)) {
				t.Fatalf("piece %d of %d bytes at %d after %d", i, p.bytes, p.at, end)
			}
			end = p.at + p.bytes
		}
		if len(h.sums) != len(h.pieces) || h.dataStart+h.size != int64(len(raw)) {
			t.Fatalf("%d sums of %d pieces, %d bytes of %d", len(h.sums), len(h.pieces), h.dataStart+h.size, len(raw))
		}
	})
}
