package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dynctl/dynctl/internal/ownerfile"
)

// Backend says what holds the shared state of a cluster whose stores are on this machine, in
// the words of the settings discovery.backend, dir and bucket.
type Backend struct {
	Name   string `json:"backend"`
	Dir    string `json:"dir,omitempty"` // absolute
	Bucket string `json:"bucket,omitempty"`
}

func (b Backend) String() string {
	switch {
	case b.Dir != "":
		return b.Name + " (" + b.Dir + ")"
	case b.Bucket != "":
		return b.Name + " (bucket " + b.Bucket + ")"
	}
	return b.Name
}

// No node has such a name.
func (c Cluster) backendPath() string { return filepath.Join(c.Path, ".backend") }

// SetBackend stores what holds the state from now on.
func (c Cluster) SetBackend(b Backend) error {
	body, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := ownerfile.Replace(c.backendPath(), append(body, '\n')); err != nil {
		return fmt.Errorf("write what holds the state: %w", err)
	}
	return nil
}

// Backend returns what holds the state, as the last run had it; ok is false if no node of the
// cluster had a store here.
func (c Cluster) Backend() (b Backend, ok bool, err error) {
	body, err := os.ReadFile(c.backendPath())
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		// Written by a version that did not keep it.
		if _, err := os.Stat(filepath.Join(c.StoreDir(), "store.log")); err == nil {
			return Backend{Name: "file", Dir: c.StoreDir()}, true, nil
		}
		return Backend{Name: "etcd"}, c.HostsEtcd(), nil
	case err != nil:
		return b, false, fmt.Errorf("read what holds the state: %w", err)
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return b, false, fmt.Errorf("read %s: %w", c.backendPath(), err)
	}
	return b, true, nil
}
