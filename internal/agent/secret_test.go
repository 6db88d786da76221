package agent

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// A node with another secret than the nodes that are there does not come up: nobody
// would ever work with it. It says which file to replace.
func TestNodeWithAnotherSecret(t *testing.T) {
	x := startExternal(t)
	cfg := x.config()
	cfg.SecretFile = filepath.Join(t.TempDir(), "secret")
	first := startAgent(t, cfg)
	if first.node.Secret != first.secret.Fingerprint() {
		t.Errorf("the node publishes %q", first.node.Secret)
	}
	other := x.config()
	other.Node.Name, other.SecretFile = "other", filepath.Join(t.TempDir(), "secret")
	_, err := tryAgent(t, other)
	if !errors.Is(err, errOtherSecret) || !strings.Contains(err.Error(), first.node.Secret) || !strings.Contains(err.Error(), other.SecretFile) {
		t.Errorf("a node with another secret: %v", err)
	}
	second := x.config()
	second.Node.Name, second.SecretFile = "second", cfg.SecretFile
	startAgent(t, second)
}
