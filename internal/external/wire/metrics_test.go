package wire

import (
	"slices"
	"strings"
	"testing"
)

func TestMetrics(t *testing.T) {
	m := ParseMetrics([]byte(`# HELP x a
# TYPE x gauge
x 1
x{rank="0",odd="a\"b\\c\nd}"} 2.5 1700000000000
x{rank="1", } 3e0
y{a="b"} NaN
y +Inf
z{a="b" 4
z{a=b} 4
z{a="b"} four
z 1 2 3
w
other 5
  spaced   7
`), func(name string) bool { return name != "other" })
	if sum := m.Sum("absent", "x"); sum == nil || *sum != 6.5 {
		t.Errorf("sum %v, want 6.5", sum)
	}
	for _, name := range []string{"y", "z", "w", "other", "absent"} {
		if sum := m.Sum(name); sum != nil {
			t.Errorf("%s is %v: it is unknown", name, *sum)
		}
	}
	if n := m.Int("spaced"); n == nil || *n != 7 {
		t.Errorf("spaced %v", n)
	}
	if got := m.Label("rank", "x"); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("ranks %v", got)
	}
	if got := m.Label("odd", "x"); !slices.Equal(got, []string{"a\"b\\c\nd}"}) {
		t.Errorf("label %q", got)
	}
	if most := m.Largest("x"); most == nil || *most != 3 {
		t.Errorf("largest %v", most)
	}
}

// A spelling that is there wins over another one, and what is there but zero is zero.
func TestSpellings(t *testing.T) {
	m := ParseMetrics([]byte("new 0\nold 5\nneg -1\nhuge 1e300\nshare 0.5\nshare{r=\"1\"} 1.5\n"), func(string) bool { return true })
	if n := m.Int("new", "old"); n == nil || *n != 0 {
		t.Errorf("new %v, want 0", n)
	}
	if n := m.Count("missing", "old"); n == nil || *n != 5 {
		t.Errorf("old %v, want 5", n)
	}
	for _, name := range []string{"neg", "huge", "missing"} {
		if m.Int(name) != nil || m.Count(name) != nil {
			t.Errorf("%s counts nothing", name)
		}
	}
	if s := m.Share("share"); s == nil || *s != 1 {
		t.Errorf("share %v, want at most 1", s)
	}
	if m.Share("missing") != nil || m.Largest("missing") != nil {
		t.Error("what is missing is unknown")
	}
}

func TestMetricsAreBounded(t *testing.T) {
	m := ParseMetrics([]byte(strings.Repeat("x 1\n", maxSamples+10)), func(string) bool { return true })
	if n := len(m["x"]); n != maxSamples {
		t.Errorf("%d samples, want %d", n, maxSamples)
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte("x{a=\"b\\\\\",c=\"d\"} 1 2\n"))
	f.Add([]byte("x{a=\"\\"))
	f.Add([]byte("{} 1\n x 1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := ParseMetrics(b, func(string) bool { return true })
		for name, samples := range m {
			if name == "" || len(samples) == 0 {
				t.Errorf("%q: metric %q has %d samples", b, name, len(samples))
			}
			if s := m.Share(name); s != nil && (*s < 0 || *s > 1) {
				t.Errorf("%q: share %v", b, *s)
			}
			m.Int(name)
			m.Count(name)
			m.Label("a", name)
		}
	})
}
