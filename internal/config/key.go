package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind says how the text of a value is read.
type Kind int

// Kinds of values and the Go types they become.
const (
	KindString   Kind = iota // string
	KindBool                 // bool: true or false
	KindInt                  // int
	KindDuration             // time.Duration, with a unit
	KindSize                 // Size, with a unit
	KindList                 // []string: a YAML list, or text with commas
	KindPath                 // string; a leading "~/" becomes the home directory
	KindSecret               // Secret; shown nowhere, and without a flag
	KindShare                // float64: above 0, at most 1
	KindRatio                // float64: from 0 to Max
)

// Key is one setting.
type Key struct {
	// Name is the dotted name, for example "engine.kv_blocks". The part before
	// the dot is the section.
	Name string
	Kind Kind
	// Default has the Go type of Kind.
	Default any
	// DefaultText replaces the default in help and example files where the
	// default depends on the environment; defaultFrom then computes it.
	DefaultText string
	defaultFrom func(getenv func(string) string) string
	// Help is one sentence without a full stop.
	Help string
	// Flag is the flag name where it is not the mechanical one.
	Flag string
	// FlagAlias is the name of the flag in Dynamo, which is read, too, and not listed.
	FlagAlias string
	// Short is the one-letter flag, if any.
	Short string
	// Aliases are environment variables that other tools use for the same thing.
	Aliases []Alias
	// Choices are the allowed values of a string, or of the items of a list.
	Choices []string
	// Reads, if not nil, checks a text that need not be one of Choices. Form says in words
	// what it accepts.
	Reads func(text string) error
	Form  string
	// Former are names of the key, and FormerChoices maps choices to what they are
	// called now, that the release before had. They are read, with a warning.
	Former        []string
	FormerChoices map[string]string
	// Min and Max limit an int, and Max a ratio, inclusive; both 0 means no limit.
	Min, Max int
	// Command is the subcommand that has the flag; empty means all of them.
	Command string
	// Runtime says that the cluster can change the setting while it runs.
	Runtime bool
}

// Alias is a second environment variable for a key.
type Alias struct {
	Name string
	// Unit is appended to a bare number, for variables that are defined as a
	// number of seconds or megabytes.
	Unit string
}

// Section returns the part of the name before the dot; empty for top-level keys.
func (k Key) Section() string {
	section, _, ok := strings.Cut(k.Name, ".")
	if !ok {
		return ""
	}
	return section
}

// HasFlag reports whether the key can be set on the command line. Secrets
// cannot: every user of the machine can read the arguments of a process.
func (k Key) HasFlag() bool { return k.Kind != KindSecret }

// FlagName returns the flag of the key, without dashes.
func (k Key) FlagName() string {
	if k.Flag != "" {
		return k.Flag
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.Name)
}

// DefaultString returns the default as it would stand in a file.
func (k Key) DefaultString() string {
	if k.DefaultText != "" {
		return k.DefaultText
	}
	return format(k.Default)
}

// Expect says in words what a value of the key looks like.
func (k Key) Expect() string {
	switch k.Kind {
	case KindBool:
		return "true or false"
	case KindInt:
		if k.Min != 0 || k.Max != 0 {
			return fmt.Sprintf("a whole number from %d to %d", k.Min, k.Max)
		}
		return "a whole number"
	case KindDuration:
		return "a duration with a unit, like 30s or 5m"
	case KindSize:
		return "a size with a unit, like 512MiB or 8GiB"
	case KindList:
		if len(k.Choices) > 0 {
			return "a list of " + strings.Join(k.Choices, ", ")
		}
		return "a list, or text with commas"
	case KindPath:
		return "a path"
	case KindShare:
		return "a number above 0 and at most 1, like 0.9"
	case KindRatio:
		return fmt.Sprintf("a number from 0 to %d, like 0.9", k.Max)
	}
	if k.Form != "" {
		return k.Form
	}
	if len(k.Choices) > 0 {
		return "one of " + strings.Join(k.Choices, ", ")
	}
	return "text"
}

// check refuses typed values outside the choices and limits of the key.
func (k Key) check(v any) error {
	switch v := v.(type) {
	case int:
		if (k.Min != 0 || k.Max != 0) && (v < k.Min || v > k.Max) {
			return fmt.Errorf("%d is not %s", v, k.Expect())
		}
	case float64:
		if inside := v > 0 && v <= 1 || k.Kind == KindRatio && v >= 0 && v <= float64(k.Max); !inside {
			return fmt.Errorf("%g is not %s", v, k.Expect())
		}
	case string:
		if k.Reads != nil {
			return k.Reads(v)
		}
		if len(k.Choices) > 0 && !slices.Contains(k.Choices, v) {
			return fmt.Errorf("%q is not %s", v, k.Expect())
		}
	case []string:
		for _, item := range v {
			if len(k.Choices) > 0 && !slices.Contains(k.Choices, item) {
				return fmt.Errorf("%q is not one of %s", item, strings.Join(k.Choices, ", "))
			}
		}
	case time.Duration:
		if v < 0 {
			return fmt.Errorf("%s is negative", v)
		}
	case Size:
		if v < 0 {
			return fmt.Errorf("%d bytes is negative", int64(v))
		}
	}
	return nil
}

// Section groups the keys that start with its name.
type Section struct {
	Name  string // "" for top-level keys
	Title string // what the section is about, as a heading
}

// Table lists every key of one program, in the order of its example file.
type Table struct {
	// Program is "dynamod" or "dynctl": it names the file and the environment
	// variables.
	Program  string
	Sections []Section
	Keys     []Key
}

// Key returns the key of that name.
func (t Table) Key(name string) (Key, bool) {
	i := slices.IndexFunc(t.Keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return t.Keys[i], true
}

// Env returns the environment variable of a key: the program and the key in
// capitals, with an underscore for every dot.
func (t Table) Env(k Key) string {
	return t.envPrefix() + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// ConfigEnv returns the environment variable that names the configuration file.
func (t Table) ConfigEnv() string { return t.envPrefix() + "CONFIG" }

func (t Table) envPrefix() string { return strings.ToUpper(t.Program) + "_" }

// isSection reports whether name is a section with keys in it.
func (t Table) isSection(name string) bool {
	return name != "" && slices.ContainsFunc(t.Keys, func(k Key) bool { return k.Section() == name })
}
