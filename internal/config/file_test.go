package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
)

func TestFileMistakes(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"unknown key", "cluster: lab\nengine:\n  kv_bloks: 1\n",
			"dynamod.yaml:3: unknown key engine.kv_bloks; did you mean engine.kv_blocks?"},
		{"key without its section", "kv_blocks: 1\n",
			"dynamod.yaml:1: unknown key kv_blocks; did you mean engine.kv_blocks?"},
		{"unknown section", "\nenigne:\n  kv_blocks: 1\n",
			"dynamod.yaml:2: unknown key enigne; did you mean engine?"},
		{"nothing near", "favorite_beverage: tea\n",
			"dynamod.yaml:1: unknown key favorite_beverage"},
		{"capitals", "Cluster: lab\n",
			"dynamod.yaml:1: unknown key Cluster; did you mean cluster?"},
		{"text for a number", "engine:\n  kv_blocks: many\n",
			`dynamod.yaml:2: engine.kv_blocks: "many" is not a whole number from 0 to 1000000000`},
		{"fraction for a number", "engine: {max_seqs: 1.5}\n",
			`dynamod.yaml:1: engine.max_num_seqs: "1.5" is not a whole number from 0 to 1000000`},
		{"number too large", "frontend:\n  port: 65536\n",
			"dynamod.yaml:2: frontend.port: 65536 is not a whole number from 0 to 65535"},
		{"number for a truth", "frontend:\n  enabled: 1\n",
			`dynamod.yaml:2: frontend.enabled: "1" is not true or false`},
		{"yes for a truth", "frontend:\n  enabled: yes\n",
			`dynamod.yaml:2: frontend.enabled: "yes" is not true or false`},
		{"bare duration", "drain:\n  deadline: 60\n",
			`dynamod.yaml:2: drain.deadline: "60" has no unit: expected a duration with a unit, like 30s or 5m`},
		{"bare size", "frontend:\n  body_limit: 1048576\n",
			`dynamod.yaml:2: frontend.body_limit: "1048576" has no unit: expected a size with a unit, like 512MiB or 8GiB`},
		{"unknown choice", "disagg:\n  strategy: que\n",
			`dynamod.yaml:2: disagg.strategy: "que" is not one of decode-first, prefill-first`},
		{"unknown item", "nixl:\n  transports: [tcp, pigeon]\n",
			`dynamod.yaml:2: nixl.transports: "pigeon" is not one of local, cudaipc, shm, cma, ucx, tcp`},
		{"list for a text", "cluster: [a]\n", "dynamod.yaml:1: cluster: a list is not text"},
		{"mapping for a text", "cluster:\n  name: a\n", "dynamod.yaml:1: cluster: a mapping is not text"},
		{"text for a section", "engine: cpu\n",
			`dynamod.yaml:1: engine: "cpu"; this is a section: expected keys like engine.kv_blocks`},
		{"text for all", "just words\n", `dynamod.yaml:1: "just words"; expected keys like cluster: ...`},
		{"no value", "cluster:\n", "dynamod.yaml:1: cluster: has no value; expected text"},
		{"twice", "cluster: a\nnode: {name: n}\ncluster: b\n", "dynamod.yaml:3: cluster: set twice; first in line 1"},
		{"twice by the dotted form", "node: {name: n}\nnode.name: m\n", "dynamod.yaml:2: node.name: set twice; first in line 1"},
		{"alias", "cluster: &a lab\nnamespace: *a\n", "dynamod.yaml:2: namespace: the alias *a is not text"},
		{"merge", "node: {name: n}\nengine:\n  <<: {kv_blocks: 1}\n", `dynamod.yaml:3: engine: "<<" is not the name of a key`},
		{"tab", "engine:\n\tkv_blocks: 1\n", "dynamod.yaml:2: not valid YAML: found character that cannot start any token"},
		{"two documents", "cluster: a\n---\ncluster: b\n", "dynamod.yaml:2: a second document starts here; expected one"},
		{"two mistakes", "clustre: a\nlog:\n  level: loud\n",
			"dynamod.yaml:1: unknown key clustre; did you mean cluster?\n" +
				`dynamod.yaml:3: log.level: "loud" is not one of debug, info, warn, error`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := loadDynamod(t, nil, nil, map[string]string{"dynamod.yaml": tc.text})
			var problems config.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want problems", err)
			}
			if got := err.Error(); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestFileForms(t *testing.T) {
	for name, text := range map[string]string{
		"empty":             "",
		"comments":          "# nothing\n",
		"empty section":     "engine:\n",
		"flow":              `{engine: {kv_blocks: 7}, nixl: {transports: [tcp]}}`,
		"dotted":            "engine.kv_blocks: 7\n",
		"quoted":            "engine:\n  kv_blocks: \"7\"\n",
		"list with commas":  "etcd:\n  endpoints: a:1, b:2\n",
		"document marker":   "---\ncluster: a\n",
		"byte order mark":   "\ufeffcluster: a\n",
		"windows line ends": "cluster: a\r\nengine:\r\n  kv_blocks: 7\r\n",
	} {
		if _, _, err := loadDynamod(t, nil, nil, map[string]string{"dynamod.yaml": text}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzFile holds that no file makes loading panic, and that every refusal is a
// list of problems with the file's name in it.
func FuzzFile(f *testing.F) {
	var b strings.Builder
	if err := config.DynamodTable().WriteExample(&b); err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{b.String(), "a: &a [*a]\n", "? {a: 1}\n: b\n", "engine: {kv_blocks: {}}", "- 1\n", "\x00", "!!binary x", "node: !!null x", "? \n: \n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, origins, err := loadDynamod(t, nil, nil, map[string]string{"dynamod.yaml": text})
		if err == nil {
			_ = origins.Locate(cfg.Validate())
			return
		}
		if !strings.HasPrefix(err.Error(), "dynamod.yaml") {
			t.Errorf("message does not name the file: %v", err)
		}
	})
}
