package clustertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

// process is one run of a node in a process of its own.
type process struct {
	cmd     *exec.Cmd
	out     patience.Buffer // what it prints
	ended   chan struct{}   // closed when it has ended
	err     error           // how; for readers of ended
	stopped bool            // the test has ended it, or it was seen to die
	doomed  bool            // it was told to die at a failpoint

	// Orders to it, one at a time; see orders.go.
	mu      sync.Mutex
	orders  io.WriteCloser
	replies *bufio.Reader
}

// startProcess starts a node as a process of its own.
func (c *Cluster) startProcess(cfg config.Dynamod) *RunningNode {
	c.t.Helper()
	r := &RunningNode{Name: cfg.Node.Name}
	r.restart = func() {
		c.t.Helper()
		r.process = c.spawn(cfg)
		c.waitUp(cfg, r)
	}
	r.stop = func(error) error { return r.process.stop() }
	c.t.Cleanup(func() {
		if err := r.stop(nil); err != nil {
			c.t.Errorf("%s: %v\n%s", r.Name, err, r.process.out.String())
		}
	})
	r.restart()
	return r
}

func (c *Cluster) spawn(cfg config.Dynamod) *process {
	c.t.Helper()
	args := []string{
		"--cluster", cfg.Cluster, "--state-dir", cfg.StateDir, "--secret-file", cfg.SecretFile, "--node-name", cfg.Node.Name,
		"--etcd-endpoints", strings.Join(cfg.Etcd.Endpoints, ","), "--nats-url", cfg.NATS.URL,
		"--etcd-lease-ttl", cfg.Etcd.LeaseTTL.String(),
		fmt.Sprintf("--frontend-enabled=%t", cfg.Frontend.Enabled), fmt.Sprintf("--frontend-port=%d", cfg.Frontend.Port),
		"--disagg-conditional", cfg.Disagg.Conditional, fmt.Sprintf("--disagg-max-local-prefill-tokens=%d", cfg.Disagg.MaxLocalPrefillTokens),
		"--drain-deadline", cfg.Drain.Deadline.String(), fmt.Sprintf("--cpu-devices=%d", cfg.CPU.Devices), fmt.Sprintf("--engine-tensor-parallel=%d", cfg.Engine.TensorParallel),
		"--request-plane", cfg.RequestPlane.Mode, fmt.Sprintf("--request-plane-tls=%t", cfg.RequestPlane.TLS),
	}
	if len(cfg.NIXL.Transports) > 0 {
		args = append(args, "--nixl-transports", strings.Join(cfg.NIXL.Transports, ","))
	}
	if len(cfg.Node.Roles) > 0 {
		args = append(args, "--node-roles", strings.Join(cfg.Node.Roles, ","))
	}
	p := &process{cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), mainVariable+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	orders, err := p.cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	replies, theirs, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.orders, p.replies = orders, bufio.NewReader(replies)
	if err := orphan.Start(p.cmd); err != nil {
		c.t.Fatal(err)
	}
	_ = theirs.Close()
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
		_ = replies.Close()
	}()
	return p
}

// waitUp waits until the process of a node has published itself.
func (c *Cluster) waitUp(cfg config.Dynamod, r *RunningNode) {
	c.t.Helper()
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
	p := r.process
	for {
		for _, n := range nodes.Snapshot() {
			if n.Name == r.Name && n.PID == p.cmd.Process.Pid {
				r.ID = n.ID
				if n.FrontendURL != "" {
					c.URL = n.FrontendURL
				}
				return
			}
		}
		select {
		case <-nodes.Changed():
		case <-p.ended:
			p.stopped = true
			c.t.Fatalf("%s ended: %v\n%s", r.Name, p.err, p.out.String())
		case <-ctx.Done():
			c.t.Fatalf("%s is not up after %s\n%s", r.Name, c.opts.Timeout, p.out.String())
		}
	}
}

// stop ends the process in order, once.
func (p *process) stop() error {
	if p.stopped {
		return nil
	}
	p.stopped = true
	if p.doomed {
		_ = p.cmd.Process.Kill()
		<-p.ended
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return p.err
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return errors.New("the process did not stop within a minute")
	}
}

// Kill kills the process of a node and waits for its end.
func (n *RunningNode) Kill() {
	n.process.stopped = true
	_ = n.process.cmd.Process.Kill()
	<-n.process.ended
}

// Died is closed when the process of a node has ended.
func (n *RunningNode) Died() <-chan struct{} { return n.process.ended }

// Restart starts the process of a node that was killed, in the same state directory, and
// waits until it has published itself. Its workers come back a moment later.
func (n *RunningNode) Restart() {
	<-n.process.ended
	n.process.stopped = true
	n.restart()
}
