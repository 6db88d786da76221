package safetensors

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenSetSingle(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, SingleName, oneTensor("a", 1))
	writeFile(t, dir, "consolidated.safetensors", oneTensor("b", 1))
	writeFile(t, dir, IndexName, []byte("not read"))
	set, err := OpenSet(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if names := set.Names(); len(names) != 1 || names[0] != "a" {
		t.Errorf("names = %v, want [a]", names)
	}
	if err := set.CheckSize(); err != nil {
		t.Error(err)
	}
}

func TestOpenSetShards(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "one.safetensors", oneTensor("a", 1, 2))
	writeFile(t, dir, "two.safetensors", oneTensor("b", 3))
	tests := []struct {
		name     string
		index    string
		warnings int
	}{
		{"plain", `{"metadata":{"total_size":3},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}`, 0},
		{"no metadata", `{"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}`, 0},
		{"unknown keys", `{"x":[1,{"y":null}],"metadata":{"z":{}},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}`, 0},
		{"fractional total", `{"metadata":{"total_size":3.5},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}`, 0},
		{"wrong total", `{"metadata":{"total_size":4},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}`, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			writeFile(t, dir, IndexName, []byte(tt.index))
			set, err := OpenSet(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			b, ok := set.Tensor("b")
			if !ok || b.File != "two.safetensors" || len(set.Files()) != 2 {
				t.Errorf("tensor b = %+v, %v", b, ok)
			}
			if len(set.Warnings()) != tt.warnings {
				t.Errorf("warnings = %q, want %d", set.Warnings(), tt.warnings)
			}
		})
	}
}

func TestOpenSetUnindexedTensor(t *testing.T) {
	dir := t.TempDir()
	var l Layout
	_, err1 := l.Add("a", "U8", 1)
	_, err2 := l.Add("extra", "U8", 1)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "one", append(l.Header(nil), 1, 2))
	writeFile(t, dir, IndexName, []byte(`{"weight_map":{"a":"one"}}`))
	set, err := OpenSet(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if w := set.Warnings(); len(w) != 1 || !strings.Contains(w[0], `"extra" of one`) {
		t.Errorf("warnings = %q", w)
	}
}

func TestOpenSetRefuses(t *testing.T) {
	tests := []struct {
		name  string
		index string
		want  string
	}{
		{"not JSON", `{`, "not JSON"},
		{"array", `[]`, "want {"},
		{"no weight map", `{}`, "weight_map is missing"},
		{"empty weight map", `{"weight_map":{}}`, "weight_map is missing"},
		{"weight map with a number", `{"weight_map":{"a":1}}`, "want a string"},
		{"duplicate weight map", `{"weight_map":{"a":"one"},"weight_map":{"a":"one"}}`, "duplicate name"},
		{"duplicate tensor", `{"weight_map":{"a":"one","a":"two"}}`, `duplicate name "a"`},
		{"parent folder", `{"weight_map":{"a":"../one"}}`, "not a plain base name"},
		{"absolute path", `{"weight_map":{"a":"/one"}}`, "not a plain base name"},
		{"subfolder", `{"weight_map":{"a":"x/one"}}`, "not a plain base name"},
		{"backslash", `{"weight_map":{"a":"x\\one"}}`, "not a plain base name"},
		{"dot dot", `{"weight_map":{"a":".."}}`, "not a plain base name"},
		{"empty file name", `{"weight_map":{"a":""}}`, "not a plain base name"},
		{"zero byte", `{"weight_map":{"a":"one\u0000"}}`, "not a plain base name"},
		{"shard not in the folder", `{"weight_map":{"a":"three"}}`, `shard "three" is not in the folder`},
		{"name in two files", `{"weight_map":{"a":"one","b":"two","x":"again"}}`, `tensor "a" is also in again`},
		{"name whose file lacks it", `{"weight_map":{"a":"one","b":"one"}}`, `tensor "b" is not in one`},
		{"name that no file has", `{"weight_map":{"a":"one","c":"one"}}`, `tensor "c" is not in one`},
		{"total size is an object", `{"metadata":{"total_size":{}},"weight_map":{"a":"one"}}`, "total_size is not a number"},
		{"damaged shard", `{"weight_map":{"a":"damaged"}}`, "open damaged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "one", oneTensor("a", 1))
			writeFile(t, dir, "two", oneTensor("b", 1))
			writeFile(t, dir, "again", oneTensor("a", 1))
			writeFile(t, dir, "damaged", []byte("x"))
			writeFile(t, dir, IndexName, []byte(tt.index))
			_, err := OpenSet(dir, nil)
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("err = %v, want ErrFormat", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want it to say %q", err, tt.want)
			}
		})
	}
	t.Run("index is a folder", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, IndexName), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSet(dir, nil); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("err = %v, want ErrFormat", err)
		}
	})
	t.Run("index over the limit", func(t *testing.T) {
		dir := t.TempDir()
		path := writeFile(t, dir, IndexName, []byte("{}"))
		if err := os.Truncate(path, maxIndex+1); err != nil { // a hole: nothing is written
			t.Fatal(err)
		}
		if _, err := OpenSet(dir, nil); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "at most") {
			t.Errorf("err = %v, want ErrFormat", err)
		}
	})
	t.Run("no weights", func(t *testing.T) {
		if _, err := OpenSet(t.TempDir(), nil); !errors.Is(err, ErrNoWeights) {
			t.Errorf("err = %v, want ErrNoWeights", err)
		}
	})
	t.Run("shard shortened after opening", func(t *testing.T) {
		dir := t.TempDir()
		writeFile(t, dir, "one", oneTensor("a", 1))
		writeFile(t, dir, IndexName, []byte(`{"weight_map":{"a":"one"}}`))
		set, err := OpenSet(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		if err := os.Truncate(filepath.Join(dir, "one"), 9); err != nil {
			t.Fatal(err)
		}
		if err := set.CheckSize(); !errors.Is(err, ErrChanged) {
			t.Errorf("err = %v, want ErrChanged", err)
		}
	})
}
