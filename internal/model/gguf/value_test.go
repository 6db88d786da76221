package gguf_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

func TestKeys(t *testing.T) {
	k := gguf.Keys{
		"unsigned": uint64(7), "signed": int64(7), "negative": int64(-1), "large": uint64(1 << 40), "fraction": float32(0.5), "double": 0.25,
		"text": "abc", "flag": true, "list": []int64{1, 2}, "unsigned list": []uint64{3}, "negative list": []int64{1, -2},
		"texts": []string{"a"}, "floats": []float32{1},
	}
	for _, name := range []string{"unsigned", "signed"} {
		if n, ok, err := k.Int(name); n != 7 || !ok || err != nil {
			t.Errorf("%s is %d, %v, %v", name, n, ok, err)
		}
		if l, ok, err := k.Ints(name); !slices.Equal(l, []int{7}) || !ok || err != nil {
			t.Errorf("%s as a list is %d, %v, %v", name, l, ok, err)
		}
		if f, ok, err := k.Float(name); f != 7 || !ok || err != nil {
			t.Errorf("%s as a fraction is %v, %v, %v", name, f, ok, err)
		}
	}
	if l, _, err := k.Ints("list"); !slices.Equal(l, []int{1, 2}) || err != nil {
		t.Errorf("list is %v, %v", l, err)
	}
	if l, _, err := k.Ints("unsigned list"); !slices.Equal(l, []int{3}) || err != nil {
		t.Errorf("unsigned list is %v, %v", l, err)
	}
	for name, want := range map[string]float64{"fraction": 0.5, "double": 0.25} {
		if f, _, err := k.Float(name); f != want || err != nil {
			t.Errorf("%s is %v, %v", name, f, err)
		}
	}
	if s, _, err := k.Text("text"); s != "abc" || err != nil {
		t.Errorf("text is %q, %v", s, err)
	}
	if b, _, err := k.Bool("flag"); !b || err != nil {
		t.Errorf("flag is %v, %v", b, err)
	}
	if l, _, err := k.Texts("texts"); !slices.Equal(l, []string{"a"}) || err != nil {
		t.Errorf("texts are %q, %v", l, err)
	}
	if l, _, err := k.Floats("floats"); !slices.Equal(l, []float32{1}) || err != nil {
		t.Errorf("floats are %v, %v", l, err)
	}
}

func TestKeysRefuse(t *testing.T) {
	long := strings.Repeat("x", 1000)
	k := gguf.Keys{
		"negative": int64(-1), "large": uint64(1 << 40), "fraction": float32(0.5), "text": long, "list": []int64{1, -2}, "numbers": []uint64{1},
	}
	read := map[string]func(name string) (bool, error){
		"int":    func(name string) (bool, error) { _, ok, err := k.Int(name); return ok, err },
		"ints":   func(name string) (bool, error) { _, ok, err := k.Ints(name); return ok, err },
		"float":  func(name string) (bool, error) { _, ok, err := k.Float(name); return ok, err },
		"text":   func(name string) (bool, error) { _, ok, err := k.Text(name); return ok, err },
		"bool":   func(name string) (bool, error) { _, ok, err := k.Bool(name); return ok, err },
		"texts":  func(name string) (bool, error) { _, ok, err := k.Texts(name); return ok, err },
		"floats": func(name string) (bool, error) { _, ok, err := k.Floats(name); return ok, err },
	}
	for how, names := range map[string][]string{
		"int":    {"negative", "large", "fraction", "text", "list", "numbers"},
		"ints":   {"negative", "large", "fraction", "text", "list"},
		"float":  {"text", "list"},
		"text":   {"negative", "list"},
		"bool":   {"negative", "text"},
		"texts":  {"text", "list"},
		"floats": {"fraction", "numbers"},
	} {
		for _, name := range names {
			ok, err := read[how](name)
			if ok || !errors.Is(err, gguf.ErrKey) || !strings.Contains(err.Error(), name) || len(err.Error()) > 200 {
				t.Errorf("%s of %s: ok %v, err = %v, want ErrKey", how, name, ok, err)
			}
		}
		if ok, err := read[how]("absent"); ok || err != nil {
			t.Errorf("%s of an absent key: %v, %v", how, ok, err)
		}
	}
}
