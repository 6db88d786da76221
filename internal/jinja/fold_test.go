package jinja

import "testing"

// The wanted strings are Python's str.casefold.
func TestFold(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "Abc": "abc", "ΑΣ ΟΔΟΣ": "ασ οδοσ", "ς": "σ", "Straße ẞ": "strasse ss",
		"ß ﬁ İ ŉ ǆ": "ss fi i\u0307 \u02bcn ǆ", "ΐ": "\u03b9\u0308\u0301",
	} {
		if got := fold(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
