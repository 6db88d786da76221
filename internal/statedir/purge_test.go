package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPurge(t *testing.T) {
	root := t.TempDir()
	made := func(cluster, node string) (Cluster, Node) {
		c, err := Open(root, cluster)
		if err != nil {
			t.Fatal(err)
		}
		n, err := c.Node(node)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Create(); err != nil {
			t.Fatal(err)
		}
		if _, err := n.ID(func() string { return node }); err != nil {
			t.Fatal(err)
		}
		return c, n
	}
	write := func(parts ...string) string {
		path := filepath.Join(append([]string{root}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	there := func(path string) bool { _, err := os.Lstat(path); return err == nil }

	c, n := made("lab", "node-1")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(n.Path, "link")); err != nil {
		t.Fatal(err)
	}
	write("lab", "secret")
	builtin, own := write("models", "builtin-1", "config.json"), write("models", "mine", "config.json")
	other, _ := made("other", "node-1")

	// While a node runs, nothing is deleted.
	lock, err := n.Lock()
	if err != nil {
		t.Fatal(err)
	}
	var held *LockedError
	if deleted, err := c.Purge(); !errors.As(err, &held) || len(deleted) > 0 || !there(c.SecretPath()) {
		t.Errorf("a node runs: %v, %v", deleted, err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}

	// What the package does not know stays, and the directory with it.
	foreign := write("lab", "notes.txt")
	if _, err := c.Purge(); err == nil || !there(foreign) || there(n.Path) || there(c.SecretPath()) {
		t.Errorf("with another file: %v", err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	if deleted, err := c.Purge(); err != nil || !slices.Equal(deleted, []string{c.Path}) || there(c.Path) {
		t.Errorf("got %v, %v", deleted, err)
	}
	if !there(outside) {
		t.Error("a link was followed")
	}
	if _, err := c.Purge(); err == nil {
		t.Error("a directory that is not there was deleted")
	}

	// Models stay as long as another cluster has nodes.
	if deleted, err := PurgeModels(root, "lab"); err != nil || len(deleted) > 0 || !there(builtin) {
		t.Errorf("another cluster needs them: %v, %v", deleted, err)
	}
	if _, err := other.Purge(); err != nil {
		t.Fatal(err)
	}
	if deleted, err := PurgeModels(root, "lab"); err != nil || len(deleted) != 1 || there(builtin) || !there(own) {
		t.Errorf("got %v, %v", deleted, err)
	}
}
