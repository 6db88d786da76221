package config_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/config"
)

// What the release before called otherwise is read, and told.
func TestFormerSpellings(t *testing.T) {
	for _, tc := range []struct {
		name   string
		file   string
		env    []string
		args   []string
		seqs   int
		disagg string
		tells  string
	}{
		{name: "a file", file: "engine:\n  max_seqs: 3\n", seqs: 3, tells: "dynamod.yaml:2: engine.max_seqs is called engine.max_num_seqs now"},
		{name: "a variable", env: []string{"DYNAMOD_ENGINE_MAX_SEQS=4"}, seqs: 4, tells: "DYNAMOD_ENGINE_MAX_SEQS: engine.max_seqs is called engine.max_num_seqs now"},
		{name: "both variables", env: []string{"DYNAMOD_ENGINE_MAX_SEQS=4", "DYNAMOD_ENGINE_MAX_NUM_SEQS=5"}, seqs: 5},
		{name: "a flag", args: []string{"--engine-max-seqs", "6"}, seqs: 6, tells: "--engine-max-seqs: engine.max_seqs is called engine.max_num_seqs now"},
		{name: "the flag of today", args: []string{"--engine-max-num-seqs", "7"}, seqs: 7},
		{name: "a value in a file", file: "disagg: {strategy: router}\n", disagg: "prefill-first", tells: "dynamod.yaml:1: the value router of disagg.strategy is called prefill-first now"},
		{name: "a value in a variable", env: []string{"DYNAMOD_DISAGG_STRATEGY=queue"}, disagg: "decode-first", tells: "the value queue of disagg.strategy"},
		{name: "a value of a flag", args: []string{"--disagg-strategy=router"}, disagg: "prefill-first", tells: "--disagg-strategy: the value router of disagg.strategy"},
		{name: "nothing of that", file: "disagg: {strategy: prefill-first}\n", disagg: "prefill-first"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := pflag.NewFlagSet("dynamod", pflag.ContinueOnError)
			config.DynamodTable().AddFlags(fs, "")
			if err := fs.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			cfg, origins, err := config.LoadDynamod(config.Input{
				Flags: fs, Environ: append(tc.env, "DYNAMOD_CONFIG=dynamod.yaml"),
				ReadFile: func(string) ([]byte, error) { return []byte(tc.file), nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			if tc.disagg == "" {
				tc.disagg = "decode-first"
			}
			if cfg.Engine.MaxSeqs != tc.seqs || cfg.Disagg.Strategy != tc.disagg {
				t.Errorf("read %d and %q", cfg.Engine.MaxSeqs, cfg.Disagg.Strategy)
			}
			if w := strings.Join(origins.Warnings(), "\n"); !strings.Contains(w, tc.tells) || (w == "") != (tc.tells == "") {
				t.Errorf("told %q, want %q", w, tc.tells)
			}
		})
	}
	_, _, err := config.LoadDynamod(config.Input{
		Environ:  []string{"DYNAMOD_CONFIG=dynamod.yaml"},
		ReadFile: func(string) ([]byte, error) { return []byte("engine:\n  max_seqs: 3\n  max_num_seqs: 4\n"), nil },
	})
	if err == nil || !strings.Contains(err.Error(), "set twice") {
		t.Errorf("both names in one file: %v", err)
	}
}

func TestCurrentSettings(t *testing.T) {
	got, _ := json.Marshal(config.CurrentSettings(map[string]json.RawMessage{
		"disagg.background_prefill": json.RawMessage("false"), "disagg.strategy": json.RawMessage(`"router"`),
		"of.tomorrow": json.RawMessage("1"), "router.policy": json.RawMessage(`"nonsense"`),
	}))
	if want := `{"disagg.overlap_kv_transfer":false,"disagg.strategy":"prefill-first","of.tomorrow":1,"router.policy":"nonsense"}`; string(got) != want {
		t.Errorf("got %s", got)
	}
	got, _ = json.Marshal(config.CurrentSettings(map[string]json.RawMessage{"disagg.background_prefill": json.RawMessage("false"), "disagg.overlap_kv_transfer": json.RawMessage("true")}))
	if want := `{"disagg.overlap_kv_transfer":true}`; string(got) != want {
		t.Errorf("both: %s", got)
	}
	if k, err := config.RuntimeKey("disagg.background_prefill"); err != nil || k.Name != "disagg.overlap_kv_transfer" {
		t.Errorf("%v %v", k.Name, err)
	}
}
