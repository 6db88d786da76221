package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// ErrNoFile is returned when the configuration file that a flag or variable
// names does not exist.
var ErrNoFile = errors.New("no such configuration file")

// Input is everything that settings are read from.
type Input struct {
	// Flags holds the parsed flags of [Table.AddFlags]; nil means none.
	Flags *pflag.FlagSet
	// Environ is a list of NAME=value, as os.Environ returns it.
	Environ []string
	// ReadFile reads a file; nil means os.ReadFile. Relative paths start at the
	// working directory.
	ReadFile func(path string) ([]byte, error)
}

// Process returns the input of the running process.
func Process(flags *pflag.FlagSet) Input {
	return Input{Flags: flags, Environ: os.Environ()}
}

// LoadDynamod returns the settings of dynamod. The error is [Problems] with every
// wrong value, or wraps [ErrNoFile]. Values may still contradict each other:
// call Validate next.
func LoadDynamod(in Input) (Dynamod, *Origins, error) {
	var cfg Dynamod
	origins, err := DynamodTable().load(in, &cfg)
	if err != nil {
		return Dynamod{}, nil, err
	}
	return cfg, origins, nil
}

// LoadDynctl returns the settings of dynctl, like [LoadDynamod].
func LoadDynctl(in Input) (Dynctl, *Origins, error) {
	var cfg Dynctl
	origins, err := DynctlTable().load(in, &cfg)
	if err != nil {
		return Dynctl{}, nil, err
	}
	return cfg, origins, nil
}

// load reads all layers and decodes the result into cfg, a pointer to a struct
// with one field for every key.
func (t Table) load(in Input, cfg any) (*Origins, error) {
	env := environment(in.Environ)
	path, file, problems, err := t.fileLayer(in, env)
	if err != nil {
		return nil, err
	}
	environ, wrong := t.envLayer(env)
	problems = append(problems, wrong...)
	flags, wrong := t.flagLayer(in.Flags, env["HOME"])
	problems = append(problems, wrong...)
	if err := problems.err(); err != nil {
		return nil, err
	}

	// One viper instance merges the layers. It is handed typed values rather than
	// the process environment, so that loading is a pure function and a wrong value
	// is reported with its origin. Every key has a default: viper's Unmarshal sees
	// only keys that it knows.
	v := viper.New()
	origins := &Origins{file: path, warnings: append(t.strayVariables(env), t.unusedVariables(env)...)}
	for _, k := range t.Keys {
		def := setting{value: t.defaultValue(k, env)}
		v.SetDefault(k.Name, def.value)
		effective := def
		for _, l := range []layer{file, environ, flags} {
			s, ok := l[k.Name]
			if ok {
				effective = s
			}
			if s.note != "" {
				origins.warnings = append(origins.warnings, fmt.Sprintf("%s: %s", s.origin, s.note))
			}
		}
		origins.values = append(origins.values, Value{k.Name, effective.value, effective.origin})
	}
	origins.warnings = append(origins.warnings, unusedLogins(origins)...)
	for _, l := range []layer{file, environ} {
		if err := v.MergeConfigMap(l.tree()); err != nil {
			return nil, fmt.Errorf("merge configuration: %w", err)
		}
	}
	for name, s := range flags {
		v.Set(name, s.value)
	}
	err = v.UnmarshalExact(cfg, func(dc *mapstructure.DecoderConfig) {
		dc.DecodeHook = nil // values have their types already
		dc.WeaklyTypedInput = false
		dc.ErrorUnset = true
	})
	if err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	return origins, nil
}

func (t Table) defaultValue(k Key, env map[string]string) any {
	if k.defaultFrom != nil {
		return k.defaultFrom(func(name string) string { return env[name] })
	}
	return k.Default
}

// tree nests the settings by section, as viper wants them.
func (l layer) tree() map[string]any {
	root := map[string]any{}
	for name, s := range l {
		section, last, ok := strings.Cut(name, ".")
		if !ok {
			root[name] = s.value
			continue
		}
		if root[section] == nil {
			root[section] = map[string]any{}
		}
		root[section].(map[string]any)[last] = s.value
	}
	return root
}

// environment turns NAME=value into a map. An empty variable counts as not set.
func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && value != "" {
			env[name] = value
		}
	}
	return env
}

// SearchPath returns where the configuration file is looked for when no flag or
// variable names one; the first that exists is read, and only that.
func (t Table) SearchPath(environ []string) []string {
	return t.searchPath(environment(environ))
}

func (t Table) searchPath(env map[string]string) []string {
	name := t.Program + ".yaml"
	paths := []string{name}
	if dir := env["XDG_CONFIG_HOME"]; filepath.IsAbs(dir) {
		paths = append(paths, filepath.Join(dir, "dynctl", name))
	} else if home := env["HOME"]; home != "" {
		paths = append(paths, filepath.Join(home, ".config", "dynctl", name))
	}
	return append(paths, filepath.Join("/etc/dynctl", name))
}

// fileLayer finds, reads and parses the configuration file.
func (t Table) fileLayer(in Input, env map[string]string) (path string, l layer, _ Problems, err error) {
	read := in.ReadFile
	if read == nil {
		read = os.ReadFile
	}
	paths, named := t.searchPath(env), ""
	if p := env[t.ConfigEnv()]; p != "" {
		paths, named = []string{p}, t.ConfigEnv()
	}
	if f := lookup(in.Flags, configFlag); f != nil && f.Changed {
		paths, named = []string{f.Value.String()}, "--"+configFlag
	}
	for _, path := range paths {
		content, err := read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, nil, fmt.Errorf("read configuration: %w", err)
		}
		l, problems := t.readFile(path, content, env["HOME"])
		return path, l, problems, nil
	}
	if named != "" {
		return "", nil, nil, fmt.Errorf("%w: %q, named by %s", ErrNoFile, paths[0], named)
	}
	return "", nil, nil, nil
}

// envLayer reads the variables of all keys; the program's own name wins over aliases.
func (t Table) envLayer(env map[string]string) (layer, Problems) {
	out := layer{}
	var problems Problems
	for _, k := range t.Keys {
		for _, a := range t.variables(k) {
			text, ok := env[a.Name]
			if !ok {
				continue
			}
			origin := Origin{Kind: FromEnv, Name: a.Name}
			if k.Kind == KindBool && (text == "1" || text == "0") {
				text = map[string]string{"1": "true", "0": "false"}[text]
			}
			if a.Unit != "" && plainNumber(text) {
				text += a.Unit
			}
			v, err := k.parse(text, env["HOME"])
			if err != nil {
				problems = append(problems, Problem{k.Name, origin, err.Error()})
			} else {
				out[k.Name] = setting{v, origin, k.FormerSpelling(a.key, text)}
			}
			break
		}
	}
	return out, problems
}

// variable is an environment variable of a key, and the name of the key that it is from.
type variable struct {
	Alias
	key string
}

// variables are all those of a key, the strongest first.
func (t Table) variables(k Key) []variable {
	out := []variable{{Alias{Name: t.Env(k)}, k.Name}}
	for _, former := range k.formerKeys() {
		out = append(out, variable{Alias{Name: t.Env(former)}, former.Name})
	}
	for _, a := range k.Aliases {
		out = append(out, variable{a, k.Name})
	}
	return out
}

// strayVariables warns of variables that begin like ours and are none, the
// environment's counterpart of an unknown key.
func (t Table) strayVariables(env map[string]string) []string {
	known := []string{t.ConfigEnv()}
	for _, k := range t.Keys {
		for _, v := range t.variables(k) {
			known = append(known, v.Name)
		}
	}
	var warnings []string
	for name := range env {
		if strings.HasPrefix(name, t.envPrefix()) && !slices.Contains(known, name) {
			warnings = append(warnings, fmt.Sprintf("unknown variable %s has no effect%s", name, didYouMean(name, known)))
		}
	}
	slices.Sort(warnings)
	return warnings
}
