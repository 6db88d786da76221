package logs

import "testing"

func TestLastLines(t *testing.T) {
	for _, tc := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", 1, "c\n"}, {"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\nc\n", 3, "a\nb\nc\n"}, {"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\nb", 1, "b"}, {"a\n\n", 1, "\n"}, {"", 3, ""}, {"a\n", 0, ""}, {"\n", 1, "\n"},
	} {
		if got := string(LastLines([]byte(tc.text), tc.n)); got != tc.want {
			t.Errorf("lastLines(%q, %d) = %q, want %q", tc.text, tc.n, got, tc.want)
		}
	}
}
