package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fileBytes joins a header and data with the right length prefix.
func fileBytes(header string, data ...byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

func writeFile(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// oneTensor is a file with one U8 tensor.
func oneTensor(name string, data ...byte) []byte {
	var l Layout
	if _, err := l.Add(name, "U8", len(data)); err != nil {
		panic(err)
	}
	return append(l.Header(nil), data...)
}

func TestOpenRefuses(t *testing.T) {
	prefix := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	tests := []struct {
		name    string
		content []byte
		want    string
	}{
		{"empty file", nil, "fewer than 8"},
		{"seven bytes", make([]byte, 7), "fewer than 8"},
		{"only a length", prefix(0, ""), "does not start with {"},
		{"header past the end", prefix(3, "{}"), "past the end"},
		{"header length over the limit", prefix(100_000_001, "{}"), "is over 100000000"},
		{"header length over 2^63", prefix(1<<63+2, "{}"), "is over 100000000"},
		{"data cut short", fileBytes(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1), "end at byte 2 of 1"},
		{"trailing bytes", fileBytes(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1, 2, 3), "end at byte 2 of 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(writeFile(t, t.TempDir(), "w.safetensors", tt.content))
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("err = %v, want ErrFormat", err)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "w.safetensors") {
				t.Errorf("err = %v, want the file name and %q", err, tt.want)
			}
		})
	}
	t.Run("folder", func(t *testing.T) {
		if _, err := Open(t.TempDir()); !errors.Is(err, ErrFormat) {
			t.Errorf("err = %v, want ErrFormat", err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		if _, err := Open(filepath.Join(t.TempDir(), "x")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("err = %v, want ErrNotExist", err)
		}
	})
}

func TestOpenUnaligned(t *testing.T) {
	content := fileBytes(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 1, 2, 3, 4)
	f, err := Open(writeFile(t, t.TempDir(), "w", content))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.Tensors()[0].Data; !bytes.Equal(got, []byte{1, 2, 3, 4}) {
		t.Errorf("data = %v", got)
	}
}

func TestLayoutRoundTrip(t *testing.T) {
	var l Layout
	for _, e := range []struct {
		name  string
		dtype DType
		shape []int
	}{{"first \"quoted\"", BF16, []int{2, 2}}, {"empty", F32, []int{0, 4}}, {"scalar", F32, nil}} {
		if _, err := l.Add(e.name, e.dtype, e.shape...); err != nil {
			t.Fatal(err)
		}
	}
	header := l.Header(map[string]string{"format": "pt", "a": "b"})
	if len(header)%64 != 0 {
		t.Errorf("header has %d bytes, want a multiple of 64", len(header))
	}
	data := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	path := writeFile(t, t.TempDir(), "w", append(header, data...))
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Metadata()["format"] != "pt" || len(f.Tensors()) != 3 {
		t.Errorf("metadata %v, tensors %v", f.Metadata(), f.Tensors())
	}
	last := f.Tensors()[2]
	if last.Name != "scalar" || last.Offset != 8 || !bytes.Equal(last.Data, data[8:]) {
		t.Errorf("last tensor = %+v", last)
	}
	if _, err := l.Add("huge", F32, 1<<40, 1<<40); !errors.Is(err, ErrFormat) {
		t.Errorf("huge: err = %v, want ErrFormat", err)
	}
}

func TestShortenedFile(t *testing.T) {
	path := writeFile(t, t.TempDir(), "w", oneTensor("a", 1, 2, 3, 4))
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.CheckSize(); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if err := f.CheckSize(); !errors.Is(err, ErrChanged) {
		t.Errorf("shortened: err = %v, want ErrChanged", err)
	}
}

func TestCloseTwice(t *testing.T) {
	f, err := Open(writeFile(t, t.TempDir(), "w", oneTensor("a", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
}

func TestParseReadsWhatOpenDoes(t *testing.T) {
	content := append([]byte("\x3a\x00\x00\x00\x00\x00\x00\x00"), `{"x":{"dtype":"F16","shape":[1,3],"data_offsets":[0,6]}}  `...)
	content = append(content, "abcdef"...)
	tensors, err := Parse(content)
	if err != nil || len(tensors) != 1 {
		t.Fatalf("%v, %v", tensors, err)
	}
	if x := tensors[0]; x.Name != "x" || x.DType != F16 || len(x.Shape) != 2 || string(x.Data) != "abcdef" || x.File != "" {
		t.Errorf("%+v", x)
	}
	for n := range len(content) {
		if _, err := Parse(content[:n]); !errors.Is(err, ErrFormat) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}
