package cluster

import "testing"

func TestParseLockKey(t *testing.T) {
	for key, want := range map[string]struct {
		name   string
		claim  Claim
		reader string
	}{
		"v1/snapshots/writer":            {"snapshots", Writing, ""},
		"v1/snapshots/readers/7-a":       {"snapshots", Reading, "7-a"},
		"v1/snapshots/writers/694d98":    {"snapshots", Waiting, ""},
		"v1/lab/models/qwen/writer":      {"lab/models/qwen", Writing, ""},
		"v1/lab/models/readers/readers":  {"lab/models", Reading, "readers"},
		"v1/writer":                      {},
		"v1//writer":                     {},
		"v1/readers/7":                   {},
		"v1/snapshots/other/7":           {},
		"v1/mdc/ns/decode/generate/1a":   {},
		"v1/instances/ns/c/writers/1a":   {},
		"v1/instances/ns/c/writer":       {},
		"/dynctl/lab/topology":           {},
		"/services/ns/c/readers/writers": {},
	} {
		name, claim, reader, ok := ParseLockKey(key)
		if name != want.name || claim != want.claim || reader != want.reader || ok != (want.claim != "") {
			t.Errorf("%s is %q %q %q %t", key, name, claim, reader, ok)
		}
	}
}
