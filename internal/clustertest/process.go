package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/dynamod"
	"github.com/dynctl/dynctl/internal/store"
)

// mainVariable makes the test binary behave as dynamod.
const mainVariable = "CLUSTERTEST_DYNAMOD"

// Main runs dynamod instead of the tests when this process was started for that.
// Call it first in TestMain.
func Main() {
	if os.Getenv(mainVariable) != "" {
		os.Exit(dynamod.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
}

// startProcess starts a node as a process of its own.
func (c *Cluster) startProcess(cfg config.Dynamod) *RunningNode {
	c.t.Helper()
	args := []string{
		"--cluster", cfg.Cluster, "--state-dir", cfg.StateDir, "--node-name", cfg.Node.Name,
		"--etcd-endpoints", strings.Join(cfg.Etcd.Endpoints, ","), "--nats-url", cfg.NATS.URL,
		"--etcd-lease-ttl", cfg.Etcd.LeaseTTL.String(),
		fmt.Sprintf("--frontend-enabled=%t", cfg.Frontend.Enabled), fmt.Sprintf("--frontend-port=%d", cfg.Frontend.Port),
		fmt.Sprintf("--disagg-max-local-prefill-tokens=%d", cfg.Disagg.MaxLocalPrefillTokens),
		"--drain-deadline", cfg.Drain.Deadline.String(),
	}
	if len(cfg.Node.Roles) > 0 {
		args = append(args, "--node-roles", strings.Join(cfg.Node.Roles, ","))
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), mainVariable+"=1")
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	r := &RunningNode{Name: cfg.Node.Name}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var once sync.Once
	r.kill = func() { once.Do(func() { _ = cmd.Process.Kill(); <-ended }) }
	r.stop = func(error) (err error) {
		once.Do(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case err = <-ended:
			case <-time.After(time.Minute):
				_ = cmd.Process.Kill()
				err = errors.New("the process did not stop within a minute")
			}
		})
		return err
	}
	c.t.Cleanup(func() {
		if err := r.stop(nil); err != nil {
			c.t.Errorf("%s: %v\n%s", r.Name, err, out.String())
		}
	})
	// It is up when it has published itself.
	s, err := store.NewEtcd(store.EtcdConfig{Endpoints: cfg.Etcd.Endpoints}, c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), c.opts.Timeout)
	defer cancel()
	nodes, err := store.WatchPrefix(ctx, s, cluster.NodePrefix, store.DecodeJSON[cluster.Node], c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	defer nodes.Close()
	for {
		for _, n := range nodes.Snapshot() {
			if n.Name == r.Name && n.PID == cmd.Process.Pid {
				r.ID = n.ID
				if n.FrontendURL != "" {
					c.URL = n.FrontendURL
				}
				return r
			}
		}
		select {
		case <-nodes.Changed():
		case err := <-ended:
			once.Do(func() {})
			c.t.Fatalf("%s ended: %v\n%s", r.Name, err, out.String())
		case <-ctx.Done():
			c.t.Fatalf("%s is not up after %s\n%s", r.Name, c.opts.Timeout, out.String())
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
