package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Traces returns the paths of everything that the cluster keeps on this machine, without
// what this package does not know. The last one is the directory of the cluster; there are
// none without it.
func (c Cluster) Traces() ([]string, error) {
	nodes, err := c.everyNode()
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, n := range nodes {
		paths = append(paths, n.Path)
	}
	for _, path := range []string{c.endpointsPath(), c.joinedPath(), c.SecretPath(), c.startLockPath(), c.StoreDir(), c.backendPath(), c.Path} {
		if _, err := os.Lstat(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// everyNode returns the nodes that ever had a directory: that of a node which ended in order
// has no lock, but its identity.
func (c Cluster) everyNode() (nodes []Node, err error) {
	entries, err := os.ReadDir(c.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state directory: %w", err)
	}
	for _, e := range entries {
		n := Node{Path: filepath.Join(c.Path, e.Name()), Name: e.Name()}
		if _, err := os.Lstat(n.idPath()); e.IsDir() && (err == nil || n.hasLock()) {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// Purge deletes what [Cluster.Traces] returns and returns what it has deleted. It needs the
// lock of [Cluster.LockStart]. While a dynamod runs, it deletes nothing and fails with a
// [*LockedError]. Files that it does not know stay, and so does then the directory.
func (c Cluster) Purge() (deleted []string, err error) {
	if info, err := os.Lstat(c.Path); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("delete %s: it is no directory", c.Path)
	}
	nodes, err := c.everyNode()
	if err != nil {
		return nil, err
	}
	for _, n := range nodes { // nothing starts in them from now on
		l, err := n.Lock()
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Release() }() // of a deleted file
	}
	traces, err := c.Traces()
	if err != nil {
		return nil, err
	}
	for _, path := range traces {
		if path == c.Path {
			break
		}
		if err := os.RemoveAll(path); err != nil {
			return deleted, fmt.Errorf("delete: %w", err)
		}
		deleted = append(deleted, path)
	}
	if err := os.Remove(c.Path); err != nil { // never with what is in it
		return deleted, fmt.Errorf("delete the directory, which holds other files: %w", err)
	}
	return append(deleted, c.Path), nil
}

// SharedModels returns the files below root that were made of models for all clusters of
// this machine: the built-in model and quantized weights. There are none while another
// cluster than the one of this name has nodes here, running or not.
func SharedModels(root, cluster string) ([]string, error) {
	all, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state directory: %w", err)
	}
	for _, e := range all {
		nodes, err := Cluster{Path: filepath.Join(root, e.Name()), Name: e.Name()}.everyNode()
		if e.IsDir() && e.Name() != cluster && (err != nil || len(nodes) > 0) {
			return nil, nil //nolint:nilerr // a cluster that cannot be read may need them
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, modelsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state directory: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if e.IsDir() && (e.Name() == "quantized" || strings.HasPrefix(e.Name(), "builtin-")) {
			paths = append(paths, filepath.Join(root, modelsName, e.Name()))
		}
	}
	return paths, nil
}

// PurgeModels deletes what [SharedModels] returns, and the directory if it is empty then.
func PurgeModels(root, cluster string) (deleted []string, err error) {
	paths, err := SharedModels(root, cluster)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return deleted, fmt.Errorf("delete: %w", err)
		}
		deleted = append(deleted, path)
	}
	if len(deleted) > 0 {
		_ = os.Remove(filepath.Join(root, modelsName)) // other files may be in it
	}
	return deleted, nil
}

const modelsName = "models"
