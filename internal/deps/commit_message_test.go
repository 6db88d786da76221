package deps

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The hook accepts the form that CONTRIBUTING.md asks for, and says what is wrong otherwise.
func TestCommitMessageHook(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	hook := filepath.Join(root(t), "scripts", "hooks", "commit-msg")
	for _, tc := range []struct{ message, says string }{
		{"controller: let a node's drain win over an ordered replacement\n\nWhy.\n", ""},
		{"nixl/tcp: keep hellos in one place\n", ""},
		{"agent, store: pass contexts instead of storing them\n", "not one area"},
		{"# a comment of git\ncli: add uncordon\n\nA node...\n# another\n", ""},
		{"engine: feed the sampler by rows\n", ""},
		{"Merge branch 'x'\n", ""},
		{"Fix drains\n", "not one area"},
		{"cli: Fix drains\n", "not one area, and a lower-case verb"},
		{"cli: drains end\n\nWhy.\n", ""}, // no list knows all nouns
		{"cli: fixed drains\n", "no imperative verb"},
		{"cli: a fix for drains\n", "no imperative verb"},
		{"cli: fix drains.\n", "full stop"},
		{"cli: fix drains\nbecause they never ended\n", "no empty line"},
		{"cli: " + strings.Repeat("fix ", 20) + "\n", "more than 72"},
		{"\n", "not one area"},
	} {
		file := filepath.Join(t.TempDir(), "message")
		if err := os.WriteFile(file, []byte(tc.message), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(bash, hook, file).CombinedOutput()
		if (err == nil) != (tc.says == "") || !strings.Contains(string(out), tc.says) {
			t.Errorf("%q: %v, it says %q, want %q", tc.message, err, out, tc.says)
		}
	}
}
