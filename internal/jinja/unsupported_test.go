package jinja_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/jinja"
)

// What chat templates do not use is refused by name, never passed over.
func TestUnsupported(t *testing.T) {
	for source, want := range map[string]string{
		"{% block a %}{% endblock %}":            "line 1: the tag 'block' is not supported in chat templates",
		"{% include 'x' %}":                      "line 1: the tag 'include' is not supported in chat templates",
		"{% print 1 %}":                          "line 1: the tag 'print' is not supported in chat templates",
		"{{ 'a'|truncate(3) }}":                  "line 1: No filter named 'truncate'.",
		"{{ 'a' is escaped }}":                   "line 1: No test named 'escaped'.",
		"{{ cycler(1) }}":                        "'cycler' is undefined",
		"{{ 'a'.swapcase() }}":                   "'str object' has no attribute 'swapcase'",
		"{{ 'a'.encode() }}":                     "the method 'encode' is not available in chat templates",
		"{{ {}.fromkeys([1]) }}":                 "'dict object' has no attribute 'fromkeys'",
		"{{ '{a.b}'.format(a=1) }}":              "field 'a.b' of a format string",
		"{{ '{:e}'.format(1.5) }}":               "Unknown format code 'e' for object of type 'float'",
		"{{ '{:06,}'.format(1) }}":               "Invalid format specifier",
		"{{ '%e' % 1.5 }}":                       "unsupported format character 'e'",
		"{{ '%*d' % (5, 3) }}":                   "unsupported format character '*'",
		"{{ 5|round(-1) }}":                      "the precision of round must not be negative",
		"{{ 'a'|int(0, 16) }}":                   "int() takes at most 1 arguments (2 given)",
		"{{ strftime_now('%U') }}":               "strftime_now: unknown conversion %U",
		"{{ strftime_now('%') }}":                "strftime_now: the format ends after a %",
		"{{ 9223372036854775807 + 1 }}":          "arithmetic with integers beyond 64 bits",
		"{{ -9223372036854775807 - 2 }}":         "arithmetic with integers beyond 64 bits",
		"{{ 3037000500 * 3037000500 }}":          "arithmetic with integers beyond 64 bits",
		"{{ (-9223372036854775807 - 1) // -1 }}": "arithmetic with integers beyond 64 bits",
		"{{ -(-9223372036854775807 - 1) }}":      "arithmetic with integers beyond 64 bits",
		"{{ big + 1 }}":                          "arithmetic with integers beyond 64 bits",
		"{{ -big }}":                             "arithmetic with integers beyond 64 bits",
		"{{ 9223372036854775808 }}":              "invalid or too large number 9223372036854775808",
	} {
		_, err := render(t, "t", source, vars(t, []byte(`{"big":123456789012345678901234567890}`)), time.Time{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
		if errors.Is(err, jinja.ErrLimit) != strings.Contains(want, "64 bits") {
			t.Errorf("%s: %v: limit error or not", source, err)
		}
	}
}

func TestBoundsOfIntegers(t *testing.T) {
	for source, want := range map[string]string{
		"{{ 9223372036854775806 + 1 }} {{ -9223372036854775807 - 1 }} {{ 3 * -3 }} {{ 0 - 0 }} {{ 5 + 0 }}": "9223372036854775807 -9223372036854775808 -9 0 5",
		"{{ big }} {{ [big] }} {{ big == big }} {{ big > 1 }} {{ big * 1.0 }} {{ big|tojson }}":             "123456789012345678901234567890 [123456789012345678901234567890] True True 1.2345678901234568e+29 123456789012345678901234567890",
	} {
		got, err := render(t, "t", source, vars(t, []byte(`{"big":123456789012345678901234567890}`)), time.Time{})
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
	}
}
