package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/config"
)

var update = flag.Bool("update", false, "write the example files instead of comparing them")

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

func tables() []config.Table {
	return []config.Table{config.DynamodTable(), config.DynctlTable()}
}

var keyName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?$`)

func TestTables(t *testing.T) {
	for _, table := range tables() {
		t.Run(table.Program, func(t *testing.T) {
			sections := map[string]bool{}
			for _, s := range table.Sections {
				sections[s.Name] = true
			}
			flags := pflag.NewFlagSet(table.Program, pflag.ContinueOnError)
			table.AddFlags(flags, "")
			table.AddFlags(flags, "top")
			seen := map[string]string{}
			for _, k := range table.Keys {
				if !keyName.MatchString(k.Name) || !sections[k.Section()] {
					t.Errorf("%s: not a name, or in an unknown section", k.Name)
				}
				if k.Help == "" || strings.HasSuffix(k.Help, ".") {
					t.Errorf("%s: help %q is not one sentence without a full stop", k.Name, k.Help)
				}
				names := []string{k.Name, table.Env(k)}
				for _, a := range k.Aliases {
					names = append(names, a.Name)
				}
				for _, n := range names {
					if other, twice := seen[n]; twice {
						t.Errorf("%s is used by %s and %s", n, other, k.Name)
					}
					seen[n] = k.Name
				}
				if k.HasFlag() != (flags.Lookup(k.FlagName()) != nil) {
					t.Errorf("%s: flag --%s: want one %v", k.Name, k.FlagName(), k.HasFlag())
				}
			}
		})
	}
	k, _ := config.DynamodTable().Key("engine.kv_blocks")
	if env := config.DynamodTable().Env(k); env != "DYNAMOD_ENGINE_KV_BLOCKS" {
		t.Errorf("environment variable %s", env)
	}
}

// TestExampleFiles compares the files in configs/ with the tables; with -update
// it writes them.
func TestExampleFiles(t *testing.T) {
	for _, table := range tables() {
		t.Run(table.Program, func(t *testing.T) {
			path := filepath.Join("..", "..", "configs", table.Program+".yaml")
			var b strings.Builder
			if err := table.WriteExample(&b); err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != b.String() {
				t.Errorf("%s is stale: run go generate ./internal/config", path)
			}
		})
	}
}

// The example as shipped sets nothing; with every key uncommented it sets every
// key to its default.
func TestExampleFilesLoad(t *testing.T) {
	uncomment := regexp.MustCompile(`(?m)^( *)#([a-z_]+: )`)
	for _, table := range tables() {
		t.Run(table.Program, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "configs", table.Program+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			load := func(text string) (any, *config.Origins) {
				t.Helper()
				in := input(t, table, nil, nil, map[string]string{table.Program + ".yaml": text})
				var cfg interface{ Validate() error }
				var origins *config.Origins
				var err error
				if table.Program == "dynamod" {
					cfg, origins, err = config.LoadDynamod(in)
				} else {
					cfg, origins, err = config.LoadDynctl(in)
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := origins.Locate(cfg.Validate()); err != nil {
					t.Error(err)
				}
				return cfg, origins
			}
			plain, origins := load(string(text))
			for _, v := range origins.All() {
				if v.Origin.Kind != config.FromDefault {
					t.Errorf("%s is set in %s", v.Key, v.Origin)
				}
			}
			set, origins := load(uncomment.ReplaceAllString(string(text), "$1$2"))
			for _, v := range origins.All() {
				if v.Origin.Kind != config.FromFile {
					t.Errorf("%s is missing from the file", v.Key)
				}
			}
			if !equal(plain, set) {
				t.Errorf("the defaults in the file differ:\n%+v\n%+v", plain, set)
			}
		})
	}
}

func TestFlagsSayTheirSectionAndDefault(t *testing.T) {
	flags := pflag.NewFlagSet("dynamod", pflag.ContinueOnError)
	config.DynamodTable().AddFlags(flags, "")
	f := flags.Lookup("log-format")
	if got := f.Annotations[config.GroupAnnotation]; len(got) != 1 || got[0] != "Logs, written to standard error" {
		t.Errorf("annotation %q", got)
	}
	if usage := flags.FlagUsages(); !strings.Contains(usage, "--log-format string") ||
		!strings.Contains(usage, "form of the lines: text for people, json for log collectors (text, json) [$DYNAMOD_LOG_FORMAT] (default \"text\")") {
		t.Errorf("usage lacks the flag:\n%s", usage)
	}
	top := pflag.NewFlagSet("dynctl", pflag.ContinueOnError)
	config.DynctlTable().AddFlags(top, "top")
	if top.Lookup("interval") == nil || top.Lookup("output") != nil {
		t.Error("a subcommand has the wrong flags")
	}
}
