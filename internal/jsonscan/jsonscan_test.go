package jsonscan

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
)

var wide = Limits{Depth: 10_000, Values: 1 << 30}

func check(s string, l Limits) error {
	c := New([]byte(s), l)
	if err := c.Skip(); err != nil {
		return err
	}
	return c.End()
}

var seeds = []string{
	``, ` `, `{}`, `[]`, `{"a":1,"b":[true,false,null,"x\u00e9\n\"",-1.5e+3]}`, ` [ 1 , 2 ] `, `[1,]`, `{"a":1,}`, `{"a"}`, `{a:1}`, `01`, `-`, `1.`, `1e`,
	`"\x"`, `"\u12g4"`, "\"\x01\"", `"`, `nul`, `true1`, `[1 2]`, `{"a":1 "b":2}`, `[1,2,30]`, `[1,02]`, `[0,00]`, `[1,,2]`, `[1,2`, `[1,2,`, `[1,2.5]`, `[1, 2,
3]`, `[123456789012345678901234567890]`, `[,1]`, `[[[[]]]]`, `{"a":{"a":{"a":[{}]}}}`, "\"\xff\"", `"\ud800"`, `]`, `,`,
}

func FuzzSkip(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := check(s, wide) == nil, json.Valid([]byte(s)); got != want {
			t.Fatalf("%q is valid: %v, want %v", s, got, want)
		}
		var want string
		raw := []byte(strings.TrimSpace(s))
		if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &want) != nil {
			return
		}
		if got, err := New(raw, wide).String(); err != nil || got != want {
			t.Fatalf("%q is %q, %v; want %q", s, got, err, want)
		}
	})
}

func TestWalk(t *testing.T) {
	c := New([]byte(` {"a" : [1, "x", {}], "b\n":{"c":null} } `), wide)
	var got []string
	err := c.Object(func(key []byte) error {
		name, err := Unquote(key)
		if err != nil {
			return err
		}
		if c.Kind() != '[' {
			raw, err := c.Raw()
			got = append(got, name+"="+string(raw))
			return err
		}
		return c.Array(func() error {
			raw, err := c.Raw()
			got = append(got, name+":"+string(raw))
			return err
		})
	})
	if want := []string{"a:1", `a:"x"`, "a:{}", "b\n={\"c\":null}"}; err != nil || c.End() != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestLimits(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, tt := range []struct {
		text   string
		limits Limits
		want   error
	}{
		{deep, Limits{100, 100}, nil},
		{deep, Limits{99, 1000}, ErrDepth},
		{`[1,2,{"a":3}]`, Limits{10, 5}, nil},
		{`[1,2,{"a":3}]`, Limits{10, 4}, ErrValues},
		{`[1,2,3]`, Limits{1, 4}, nil},
		{`[1,2,3]`, Limits{1, 3}, ErrValues},
		{`[1,2,3]`, Limits{0, 4}, ErrDepth},
		{`[[1,2],[3]]`, Limits{2, 6}, nil},
		{`[[1,2],[3]]`, Limits{2, 5}, ErrValues},
		{strings.Repeat("[", 10_000_000), Limits{100, 1000}, ErrDepth},
	} {
		if err := check(tt.text, tt.limits); !errors.Is(err, tt.want) {
			t.Errorf("%.30s with %v: %v, want %v", tt.text, tt.limits, err, tt.want)
		}
	}
}

// TestNothingIsCopied: passing over a text takes no memory that grows with it.
func TestNothingIsCopied(t *testing.T) {
	text := []byte(`[` + strings.Repeat(`{"role":"user","content":"hello"},`, 10_000) + `1]`)
	if n := patience.Allocs(5, func() {
		if err := New(text, wide).Skip(); err != nil {
			t.Fatal(err)
		}
	}); n > 10 {
		t.Errorf("%v allocations for %d values", n, 30_001)
	}
	if _, err := New([]byte(fmt.Sprint(1)), wide).String(); !errors.Is(err, ErrSyntax) {
		t.Errorf("a number is a string: %v", err)
	}
}

// Wholes reads what encoding/json reads, or nothing.
func FuzzWholes(f *testing.F) {
	for _, s := range seeds {
		f.Add(s, 3)
	}
	for _, s := range []string{`[4294967295]`, `[4294967296]`, `[18446744073709551617]`, `[1,2,3]`, `[1,2,3,4]`, `[-1]`, `[0]`, ` [7,8] x`, `["1"]`, `[1e2]`} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		c := New([]byte(s), wide)
		got, ok := c.Wholes(nil, most)
		if !ok {
			if c.at > 0 && strings.TrimLeft(s[:c.at], " \t\r\n") != "" || c.Values() != wide.Values {
				t.Fatalf("%q: moved to byte %d", s, c.at)
			}
			return
		}
		var want []uint32
		if err := json.Unmarshal([]byte(s[:c.at]), &want); err != nil || len(want) > most || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q with %d: %v, want %v, %v", s, most, got, want, err)
		}
	})
}

// Plain lists of numbers are read, also the longest and the largest.
func TestWholes(t *testing.T) {
	for _, s := range []string{`[0]`, `[1,2,3]`, ` [ 10, 4294967295,
0]`} {
		var want []uint32
		if err := json.Unmarshal([]byte(s), &want); err != nil {
			t.Fatal(err)
		}
		c := New([]byte(s), wide)
		if got, ok := c.Wholes(nil, 3); !ok || !reflect.DeepEqual(got, want) || c.End() != nil || c.Values() != wide.Values-1-len(want) {
			t.Errorf("%q: %v, %v, want %v", s, got, ok, want)
		}
		if _, ok := New([]byte(s), wide).Wholes(nil, len(want)-1); ok {
			t.Errorf("%q: more than %d are read", s, len(want)-1)
		}
	}
}

func BenchmarkWholes(b *testing.B) {
	text := []byte(`[` + strings.Repeat(`12345,`, 9_999) + `1]`)
	ids := make([]uint32, 0, 10_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := New(text, wide).Skip(); err != nil {
			b.Fatal(err)
		}
		if _, ok := New(text, wide).Wholes(ids, 10_000); !ok {
			b.Fatal("not read")
		}
	}
}
