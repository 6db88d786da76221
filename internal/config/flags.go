package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

const configFlag = "config"

// GroupAnnotation is the key under which a flag's annotations hold the title of
// its section, for help texts that group flags.
const GroupAnnotation = "dynctl_section"

// AddFlags adds the flags of a command to fs: those of every key that belongs to
// that subcommand, or with command "" those of the keys that belong to none, and
// --config.
func (t Table) AddFlags(fs *pflag.FlagSet, command string) {
	if command == "" {
		fs.String(configFlag, "", fmt.Sprintf("configuration file (default: the first of ./%[1]s.yaml, ~/.config/dynctl/%[1]s.yaml, /etc/dynctl/%[1]s.yaml)", t.Program))
	}
	for _, k := range t.Keys {
		if k.Command != command || !k.HasFlag() {
			continue
		}
		value := &flagValue{key: k, text: k.DefaultString()}
		f := fs.VarPF(value, k.FlagName(), k.Short, t.flagUsage(k))
		if k.Kind == KindBool {
			f.NoOptDefVal = "true"
		}
		for _, former := range k.formerKeys() {
			old := fs.VarPF(value, former.FlagName(), "", f.Usage)
			old.NoOptDefVal, old.Hidden = f.NoOptDefVal, true
		}
		if k.FlagAlias != "" {
			fs.VarPF(value, k.FlagAlias, "", f.Usage).Hidden = true
		}
		f.Annotations = map[string][]string{GroupAnnotation: {t.sectionTitle(k.Section())}}
	}
}

func (t Table) sectionTitle(name string) string {
	for _, s := range t.Sections {
		if s.Name == name {
			return s.Title
		}
	}
	return name
}

func (t Table) flagUsage(k Key) string {
	if len(k.Choices) > 0 {
		return fmt.Sprintf("%s (%s) [$%s]", k.Help, choices(k), t.Env(k))
	}
	return fmt.Sprintf("%s [$%s]", k.Help, t.Env(k))
}

func choices(k Key) string {
	s := ""
	for i, c := range k.Choices {
		if i > 0 {
			s += ", "
		}
		s += c
	}
	return s
}

// flagValue is a pflag.Value that reads its text by the rules of its key, so that
// a wrong value is a usage error of the flag.
type flagValue struct {
	key  Key
	text string
	list []string // items of a list that were given so far
}

func (f *flagValue) Set(text string) error {
	v, err := f.key.parse(text, "")
	if err != nil {
		return err
	}
	if _, ok := v.([]string); ok {
		// A repeated flag adds to its list, as it was typed: a former spelling is told.
		items, _ := f.key.parseList(text) // parse has read it
		f.list = append(f.list, items...)
		text = format(f.list)
	}
	f.text = text
	return nil
}

func (f *flagValue) String() string { return f.text }

func (f *flagValue) Type() string {
	switch f.key.Kind {
	case KindBool:
		return "bool" // pflag leaves the type of these out of the usage
	case KindInt:
		return "int"
	case KindDuration:
		return "duration"
	case KindSize:
		return "size"
	case KindList:
		return "list"
	case KindPath:
		return "path"
	case KindShare:
		return "share"
	case KindRatio:
		return "ratio"
	}
	return "string"
}

// flagLayer reads the flags that were given. Flags that the set does not have
// are skipped: a subcommand has fewer.
func (t Table) flagLayer(fs *pflag.FlagSet, home string) (layer, Problems) {
	out := layer{}
	var problems Problems
	for _, k := range t.Keys {
		f, name := lookup(fs, k.FlagName()), k.Name
		for _, former := range k.formerKeys() {
			if old := lookup(fs, former.FlagName()); old != nil && old.Changed {
				f, name = old, former.Name
			}
		}
		if other := lookup(fs, k.FlagAlias); other != nil && other.Changed {
			f = other
		}
		if !k.HasFlag() || f == nil || !f.Changed {
			continue
		}
		origin := Origin{Kind: FromFlag, Name: f.Name}
		v, err := k.parse(f.Value.String(), home)
		if err != nil {
			problems = append(problems, Problem{k.Name, origin, err.Error()})
			continue
		}
		out[k.Name] = setting{v, origin, k.FormerSpelling(name, f.Value.String())}
	}
	return out, problems
}

func lookup(fs *pflag.FlagSet, name string) *pflag.Flag {
	if fs == nil {
		return nil
	}
	return fs.Lookup(name)
}
