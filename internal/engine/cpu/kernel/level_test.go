package kernel

import (
	"errors"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		want Level
		err  error
	}{
		{"", Best(), nil},
		{"auto", Best(), nil},
		{"portable", Portable, nil},
		{" PORTABLE ", Portable, nil},
		{Best().String(), Best(), nil},
		{"sse9", Portable, ErrLevel},
	}
	for l := Best() + 1; l <= AMX; l++ { // what this machine lacks
		tests = append(tests, struct {
			name string
			want Level
			err  error
		}{l.String(), Portable, ErrLevel})
	}
	for _, tt := range tests {
		if got, err := Parse(tt.name); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%q: %v, %v; want %v, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}

func TestShare(t *testing.T) {
	for _, l := range []Level{AVX2, AVX512, AMX} {
		for _, width := range []int{16, 32} {
			for n := 1; n < 100; n++ {
				share := l.Share(n, width)
				if calls := (n + share - 1) / share; share > l.Rows(width) || calls != (n+l.Rows(width)-1)/l.Rows(width) {
					t.Errorf("%s: %d rows in calls of %d, at most %d", l, n, share, l.Rows(width))
				}
			}
		}
	}
}

func TestFastBF16(t *testing.T) {
	for _, l := range Levels() {
		if l.FastBF16() && !l.BF16() {
			t.Errorf("%s is fast at what it lacks", l)
		}
	}
}
