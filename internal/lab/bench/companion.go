package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/dynctl/dynctl/internal/agent"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/undo"
)

// companion is an agent in a separate process, which runs the prefill workers of a node
// in the parent.
type companion struct {
	Dir        string   `json:"dir"` // state directory
	SecretFile string   `json:"secret_file"`
	Etcd       []string `json:"etcd"`
	NATS       string   `json:"nats"`
	GPUs       string   `json:"gpus,omitempty"`
	Cores      int      `json:"cores,omitempty"`
}

// companion starts the second process of a node, which ends with the node.
func (s *session) companion(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTimeout, errNotUp)
	defer cancel()
	c, err := s.startChild(context.WithoutCancel(ctx), childSpec{Companion: &companion{
		Dir: n.spec.dir + "-companion", SecretFile: n.secretFile, Etcd: n.at.Etcd, NATS: n.at.NATS, GPUs: n.spec.gpus, Cores: n.spec.cores,
	}})
	if err != nil {
		return err
	}
	n.back.Push("end the second process", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })() // it may have ended
		return c.end()
	})
	up := make(chan error, 1)
	go func() { // ends with the line, or with the process
		_, err := c.line()
		up <- err
	}()
	select {
	case err := <-up:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run runs the second process. It writes a line when it is up and ends with stdin.
func (c *companion) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	cfg, err := nodeSpec{dir: c.Dir, gpus: c.GPUs, cores: c.Cores, devices: 1}.config()
	if err != nil {
		return err
	}
	cfg.Node.Name, cfg.Node.Roles = "companion", []string{string(cluster.RolePrefill)}
	cfg.Etcd.Endpoints, cfg.NATS.URL, cfg.Frontend.Enabled, cfg.SecretFile = c.Etcd, c.NATS, false, c.SecretFile
	if err := cfg.Validate(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	var back undo.Stack
	defer back.Run(stopStep, log)
	if _, err := startAgent(ctx, cfg, agent.Options{Version: "bench", Log: log}, &back); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, "up", time.Now().Format(time.RFC3339)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin) // ends when the parent does
	return err
}
