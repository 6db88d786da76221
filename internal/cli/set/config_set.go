package set

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/config"
)

// ConfigSetOptions change a key of the configuration file.
type ConfigSetOptions struct {
	Session    *session.Session
	Key, Value string // Value - is read from standard input
	DryRun     bool
}

func configSetCommand(a *command.App) *cobra.Command {
	o := &ConfigSetOptions{}
	cmd := a.Command(command.Verb{
		Use: "set <key> <value>", Short: "Change a key of the configuration file of dynctl", Local: true,
		Long: `The file is the one that is in force (dynctl config view --origin names it), else the
user's own, which is made. Only the line of that key changes. The value - reads one line from
standard input; secrets are read in no other way, as others can see command lines.

dynctl set changes settings of a running cluster; this changes what dynctl itself does.`,
		Examples: []string{
			"dynctl config set output wide",
			"dynctl config set etcd.endpoints etcd-1:2379,etcd-2:2379",
			"dynctl config set nats.token - < token.txt",
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("name a key and its value")
			}
			return nil
		},
		Complete: completeConfig,
		See:      []string{"dynctl config view", "dynctl help config"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Key, o.Value = s, args[0], args[1]
			return o
		},
	})
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "print what would change, and change nothing")
	return cmd
}

// configChange is the answer, as -o json prints it.
type configChange struct {
	Key     string `json:"key"`
	Value   any    `json:"value"`
	File    string `json:"file"`
	Changed bool   `json:"changed"` // false if it was so before, or nothing is changed
	// Overridden names the flag or variable that wins over the file.
	Overridden string `json:"overridden_by,omitempty"`
}

// Run changes the file.
func (o *ConfigSetOptions) Run(_ context.Context) error {
	key, text := o.Key, o.Value
	action := "cannot set " + key
	k, known := config.DynctlTable().Key(key)
	if text == "-" {
		line, err := output.ReadLine(o.Session.Out.Streams.In)
		if line = strings.TrimRight(line, "\r"); line == "" {
			return &exit.Failure{Action: action, Err: noValue(err), Code: exit.Usage}
		}
		text = line
	} else if known && k.Kind == config.KindSecret {
		return &exit.Failure{Action: action, Err: errors.New("others can see command lines"), Tries: []string{"dynctl config set " + key + " -   and type it, or < file"}, Code: exit.Usage}
	}
	file := configFile(o.Session)
	before, err := os.ReadFile(o.Session.Env.Path(file))
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &exit.Failure{Action: action, Err: err}
	}
	after, err := config.DynctlTable().Edit(file, before, key, text)
	if err != nil {
		return configFailure(action, err)
	}
	origins, err := loadAlone(o.Session, file, after)
	if err != nil {
		return configFailure(action, err)
	}
	c := configChange{Key: key, File: o.Session.Env.Path(file), Changed: !slices.Equal(before, after) && !o.DryRun, Overridden: overridden(o.Session, key)}
	if v, ok := origins.Of(key); ok {
		c.Value = v.Plain()
	}
	if c.Changed {
		if err := replaceFile(o.Session.Env.Path(file), after); err != nil {
			return &exit.Failure{Action: action, Err: err, Tries: []string{"--config FILE, for another file"}}
		}
	}
	configNotes(o.Session, c, k, exists)
	return o.Session.Out.Answer(output.Answer{Data: c, Names: []string{key}, Text: o.sentence(c, after, before)})
}

func (o *ConfigSetOptions) sentence(c configChange, after, before []byte) string {
	switch {
	case slices.Equal(before, after):
		return fmt.Sprintf("%s is %v in %s already.\n", c.Key, textOf(c.Value), c.File)
	case o.DryRun:
		return fmt.Sprintf("would set %s to %v in %s\n", c.Key, textOf(c.Value), c.File)
	}
	return fmt.Sprintf("%s is %v in %s.\n", c.Key, textOf(c.Value), c.File)
}

func textOf(v any) string {
	if list, ok := v.([]string); ok {
		return strings.Join(list, ",")
	}
	return human.OrDash(fmt.Sprint(v))
}

// configNotes says what keeps the change from having an effect, or others from not
// reading it.
func configNotes(sess *session.Session, c configChange, k config.Key, existed bool) {
	if c.Overridden != "" {
		sess.Out.Note("%s is set and wins over the file", c.Overridden)
	}
	if info, err := os.Stat(c.File); c.Changed && k.Kind == config.KindSecret && existed && err == nil && info.Mode().Perm()&0o077 != 0 {
		sess.Out.Warn("others on this machine can read %s: chmod 600 %s", c.File, human.ShellQuote(c.File))
	}
}

// configFile is the file to change: the one that a flag or variable names, the one that is
// in force, or the user's own.
func configFile(s *session.Session) string {
	if fl := s.Flags.Lookup("config"); fl != nil && fl.Changed {
		return fl.Value.String()
	}
	if p := s.Env.Variables().Get(config.DynctlTable().ConfigEnv()); p != "" {
		return p
	}
	if file := s.Origins.File(); file != "" {
		return file
	}
	paths := config.DynctlTable().SearchPath(s.Env.Environ)
	return paths[min(1, len(paths)-1)] // after the one in the working directory
}

// loadAlone loads and validates a file as if no flag and no variable overrode anything.
func loadAlone(s *session.Session, file string, content []byte) (*config.Origins, error) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.DynctlTable().AddFlags(fs, "")
	_ = fs.Set("config", file) // text is never wrong
	cfg, origins, err := config.LoadDynctl(config.Input{Flags: fs, Environ: []string{"HOME=" + s.Env.Variables().Get("HOME")}, ReadFile: func(string) ([]byte, error) { return content, nil }})
	if err != nil {
		return nil, err
	}
	return origins, origins.Locate(cfg.Validate())
}

// overridden names what wins over the file; empty if nothing does.
func overridden(s *session.Session, key string) string {
	if v, ok := s.Origins.Of(key); ok && (v.Origin.Kind == config.FromEnv || v.Origin.Kind == config.FromFlag) {
		return v.Origin.String()
	}
	return ""
}

func configFailure(action string, err error) error {
	f := &exit.Failure{Action: action, Err: err}
	var ps config.Problems
	switch {
	case errors.As(err, &ps) && len(ps) == 1 && ps[0].Origin.Kind == config.FromDefault:
		f.Err, f.Tries, f.Code = errors.New(strings.TrimPrefix(ps[0].Error(), ps[0].Key+": ")), []string{"dynctl help config"}, exit.Usage
	case errors.As(err, &ps):
		f.Tries = []string{"dynctl help config"}
	case errors.Is(err, config.ErrNotEditable):
		f.Code = exit.Failed
	}
	return f
}

// noValue says why standard input held nothing.
func noValue(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errors.New("standard input has no value")
	}
	return fmt.Errorf("read standard input: %w", err)
}

// replaceFile writes a file in one step, where a link leads. A new one is the user's
// alone; an old one keeps its mode.
func replaceFile(path string, content []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".dynctl-*.yaml")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // nobody else knows of it
	}
	return err
}

// completeConfig completes a key, and then a value where there are a few.
func completeConfig(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	for _, k := range config.DynctlTable().Keys {
		switch {
		case len(args) == 0:
			out = append(out, cobra.CompletionWithDesc(k.Name, k.Help))
		case len(args) == 1 && k.Name == args[0]:
			out = append(out, k.Choices...)
			if k.Kind == config.KindBool {
				out = append(out, "true", "false")
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
