package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	// Longer names first: "MiB" ends in "B" too.
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// String returns the size with the largest binary unit that divides it, so that
// ParseSize reads the same number back.
func (s Size) String() string {
	if s == 0 {
		return "0"
	}
	for _, u := range sizeUnits {
		if strings.HasSuffix(u.name, "iB") && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// Errors of [ParseSize] and [ParseDuration].
var (
	// ErrNoUnit is returned when a size or duration is a bare number. 0 alone
	// needs no unit.
	ErrNoUnit = errors.New("has no unit")
	// ErrSyntax is returned when text is no size or duration at all.
	ErrSyntax = errors.New("cannot be read")
)

// ParseSize reads a size such as 8GiB, 512MB or 1.5GiB. Binary units (KiB) count
// in 1024, decimal ones (KB) in 1000.
func ParseSize(text string) (Size, error) {
	const expect = "expected a size with a unit, like 512MiB or 8GiB"
	s := strings.TrimSpace(text)
	if s == "0" {
		return 0, nil
	}
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		digits = strings.TrimSpace(digits)
		if !plainNumber(digits) {
			break
		}
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || n*float64(u.bytes) >= math.MaxInt64 {
			return 0, fmt.Errorf("%q %w: too large", text, ErrSyntax)
		}
		if whole, err := strconv.ParseInt(digits, 10, 64); err == nil {
			return Size(whole * u.bytes), nil // exact: beyond 2^53 the float is not
		}
		return Size(math.Round(n * float64(u.bytes))), nil
	}
	if plainNumber(s) {
		return 0, fmt.Errorf("%q %w: %s", text, ErrNoUnit, expect)
	}
	return 0, fmt.Errorf("%q %w: %s", text, ErrSyntax, expect)
}

// ParseDuration reads a duration such as 30s, 5m or 1h30m.
func ParseDuration(text string) (time.Duration, error) {
	const expect = "expected a duration with a unit, like 30s or 5m"
	s := strings.TrimSpace(text)
	d, err := time.ParseDuration(s)
	switch {
	case err == nil && d < 0:
		return 0, fmt.Errorf("%q %w: negative", text, ErrSyntax)
	case err == nil && (d != 0 || s == "0" || !plainNumber(s)):
		return d, nil
	case plainNumber(s):
		return 0, fmt.Errorf("%q %w: %s", text, ErrNoUnit, expect)
	}
	return 0, fmt.Errorf("%q %w: %s", text, ErrSyntax, expect)
}

// plainNumber reports whether s is digits with at most one dot between or after
// them: no sign, exponent or hexadecimal.
func plainNumber(s string) bool {
	whole, rest, _ := strings.Cut(s, ".")
	return whole != "" && strings.Trim(whole+rest, "0123456789") == ""
}

// Secret is text that must not appear in logs, listings or errors. Every way of
// printing it shows a placeholder; Reveal returns the text.
type Secret string

const hidden = "(hidden)"

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String returns a placeholder, or nothing when the secret is not set.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString keeps the secret out of %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// LogValue keeps the secret out of structured logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps the secret out of JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Parse reads the text of a value; a leading "~/" of a path stays.
func (k Key) Parse(text string) (any, error) { return k.parse(text, "") }

// parse reads the text of a value of the key; home replaces a leading "~/" of a
// path. Errors quote the text and say what was expected.
func (k Key) parse(text, home string) (any, error) {
	v, err := k.parseKind(text, home)
	if err != nil {
		return nil, err
	}
	v = k.current(v)
	return v, k.check(v)
}

func (k Key) parseKind(text, home string) (any, error) {
	switch k.Kind {
	case KindBool:
		switch strings.ToLower(text) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	case KindInt:
		if n, err := strconv.Atoi(text); err == nil {
			return n, nil
		}
	case KindShare, KindRatio:
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f, nil
		}
	case KindDuration:
		return ParseDuration(text)
	case KindSize:
		return ParseSize(text)
	case KindList:
		return k.parseList(text)
	case KindPath:
		if rest, ok := strings.CutPrefix(text, "~/"); ok && home != "" {
			return home + "/" + rest, nil
		}
		return text, nil
	case KindSecret:
		return Secret(text), nil
	default:
		return text, nil
	}
	return nil, fmt.Errorf("%q is not %s", text, k.Expect())
}

func (k Key) parseList(text string) ([]string, error) {
	items := []string{}
	if strings.TrimSpace(text) == "" {
		return items, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return nil, fmt.Errorf("%q has an empty item: expected %s", text, k.Expect())
		}
		items = append(items, item)
	}
	return items, nil
}

// format writes a typed value as it would stand in a file.
func format(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return formatDuration(v)
	}
	return fmt.Sprint(v)
}

// formatDuration drops the zero units of Duration.String: 10m, not 10m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if t, ok := strings.CutSuffix(s, "m0s"); ok {
		s = t + "m"
	}
	if t, ok := strings.CutSuffix(s, "h0m"); ok {
		s = t + "h"
	}
	return s
}
