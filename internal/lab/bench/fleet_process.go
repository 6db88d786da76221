package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/dynctl/dynctl/internal/agent"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/undo"
)

// fleetProcess is the work of a child process: some nodes of a fleet.
type fleetProcess struct {
	Nodes []fleetNode `json:"nodes"`
	// Stores says where etcd and NATS are. If it is empty, the first node runs both.
	Stores fleetStores `json:"stores"`
}

type fleetNode struct {
	Name     string `json:"name"`
	Dir      string `json:"dir"` // state directory
	Frontend bool   `json:"frontend"`
}

// fleetStores is how to reach the stores of a fleet.
type fleetStores struct {
	Etcd       []string `json:"etcd,omitempty"`
	NATS       string   `json:"nats,omitempty"`
	SecretFile string   `json:"secret_file,omitempty"`
}

// fleetUp is the first line that a process writes, once its nodes are up.
type fleetUp struct {
	Frontends []string    `json:"frontends"` // URLs
	Status    []string    `json:"status"`    // URLs of health and metrics, of each node
	Stores    fleetStores `json:"stores"`
}

// Questions to a process, a line each. It answers with a [Sample] as JSON.
const (
	askCPU       = "cpu"       // keyCPUSeconds
	askFootprint = "footprint" // after a garbage collection: memory, goroutines, files
)

// keyCPUSeconds is the processor time of a process since its start.
const keyCPUSeconds = "cpu_s"

// run starts the nodes and answers questions until stdin ends.
func (f *fleetProcess) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	var back undo.Stack
	defer back.Run(stopStep, log)
	up := fleetUp{Stores: f.Stores}
	for _, n := range f.Nodes {
		if err := n.start(ctx, &up, log, &back); err != nil {
			return fmt.Errorf("start %s: %w", n.Name, err)
		}
	}
	out := json.NewEncoder(stdout)
	if err := out.Encode(up); err != nil {
		return err
	}
	questions := bufio.NewScanner(stdin)
	for questions.Scan() {
		s := Sample{}
		switch questions.Text() {
		case askCPU:
			if used, known := cpuTime(); known {
				s[keyCPUSeconds] = used.Seconds()
			}
		case askFootprint:
			s.footprint()
		default:
			return fmt.Errorf("benchmark child: %w: question %q", errNoWork, questions.Text())
		}
		if err := out.Encode(s); err != nil {
			return err
		}
	}
	return questions.Err()
}

// start starts one node and adds its addresses to up.
func (n fleetNode) start(ctx context.Context, up *fleetUp, log *slog.Logger, back *undo.Stack) error {
	cfg, err := nodeSpec{dir: n.Dir, devices: 1}.config()
	if err != nil {
		return err
	}
	cfg.Node.Name, cfg.Frontend.Enabled = n.Name, n.Frontend
	cfg.Etcd.Endpoints, cfg.NATS.URL, cfg.SecretFile = up.Stores.Etcd, up.Stores.NATS, up.Stores.SecretFile
	if err := cfg.Validate(); err != nil {
		return err
	}
	node, err := startAgent(ctx, cfg, agent.Options{Version: "bench", Log: log}, back)
	if err != nil {
		return err
	}
	up.Status = append(up.Status, node.StatusURL)
	if n.Frontend {
		up.Frontends = append(up.Frontends, node.FrontendURL)
	}
	if len(up.Stores.Etcd) > 0 {
		return nil
	}
	dir, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return err
	}
	at, err := dir.Endpoints()
	if err != nil {
		return err
	}
	up.Stores = fleetStores{Etcd: at.Etcd, NATS: at.NATS, SecretFile: dir.SecretPath()}
	return nil
}

// footprint adds what the process holds: memory in MB, goroutines and open files.
func (s Sample) footprint() {
	runtime.GC()
	runtime.GC() // the first one fills pools that the second one empties
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s[keyMemory] = float64(m.HeapAlloc+m.StackInuse) / 1e6
	s[keyGoroutines] = float64(runtime.NumGoroutine())
	if files, err := os.ReadDir("/proc/self/fd"); err == nil { // only Linux has it
		s[keyFiles] = float64(len(files))
	}
}

// fleetProcesses are the running processes of a fleet.
type fleetProcesses struct {
	children []*child
	up       fleetUp // of all of them
}

// startFleet starts nodes in processes below a directory. Frontends are on the first
// nodes, and the stores on the first one.
func (s *session) startFleet(ctx context.Context, dir string, spec fleetSpec) (_ *fleetProcesses, err error) {
	f := &fleetProcesses{}
	defer func() {
		if err != nil {
			f.kill()
		}
	}()
	for i := range spec.processes {
		work := &fleetProcess{Stores: f.up.Stores}
		for n := i; n < spec.nodes; n += spec.processes {
			name := fmt.Sprintf("node-%d", n+1)
			work.Nodes = append(work.Nodes, fleetNode{Name: name, Dir: filepath.Join(dir, name), Frontend: n < spec.frontends})
		}
		c, err := s.startChild(context.WithoutCancel(ctx), childSpec{Fleet: work})
		if err != nil {
			return nil, err
		}
		f.children = append(f.children, c)
		var up fleetUp
		if err := c.answer(ctx, &up); err != nil {
			return nil, err
		}
		f.up.Frontends = append(f.up.Frontends, up.Frontends...)
		f.up.Status = append(f.up.Status, up.Status...)
		f.up.Stores = up.Stores
	}
	return f, nil
}

// answer decodes the next line of a child. If ctx ends first, the child is killed.
func (c *child) answer(ctx context.Context, into any) error {
	defer context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })() // it may have ended
	line, err := c.line()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return c.ended(err)
	}
	if err := json.Unmarshal([]byte(line), into); err != nil {
		return fmt.Errorf("read from benchmark child: %w: %s", err, strings.TrimSpace(line))
	}
	return nil
}

// ended adds to an error how the child ended that closed its pipes.
func (c *child) ended(err error) error {
	_ = c.cmd.Process.Kill() // it has ended, or does no more good
	return errors.Join(err, c.end())
}

// ask asks all processes and returns the sums of their answers.
func (f *fleetProcesses) ask(ctx context.Context, question string) (Sample, error) {
	sum := Sample{}
	for _, c := range f.children {
		if _, err := fmt.Fprintln(c.stdin, question); err != nil {
			return nil, c.ended(fmt.Errorf("ask benchmark child: %w", err))
		}
	}
	for _, c := range f.children {
		var s Sample
		if err := c.answer(ctx, &s); err != nil {
			return nil, err
		}
		for key, v := range s {
			sum[key] += v
		}
	}
	return sum, nil
}

// kill ends all processes at once: to drain a thousand workers would take longer than to
// measure them.
func (f *fleetProcesses) kill() {
	for _, c := range f.children {
		_ = c.cmd.Process.Kill() // it may have ended
	}
	for _, c := range f.children {
		_ = c.end() // killed
	}
}
