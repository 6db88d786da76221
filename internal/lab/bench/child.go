package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

// childSpec is the work of a child process. It is passed as JSON in the last argument.
type childSpec struct {
	// FirstToken starts an engine and prints the time of its first token.
	FirstToken *firstToken `json:"first_token,omitempty"`
	// Spin keeps this many processors busy until standard input ends, which it also does
	// when the parent dies.
	Spin int `json:"spin,omitempty"`
	// Companion runs a second agent for a node of the parent, until standard input ends.
	Companion *companion `json:"companion,omitempty"`
	// Fleet runs nodes of a fleet, until standard input ends.
	Fleet *fleetProcess `json:"fleet,omitempty"`
}

// firstToken describes an engine that a child starts.
type firstToken struct {
	Model  string    `json:"model"`
	Format string    `json:"format"` // of weights, bf16 by default
	Cache  string    `json:"cache"`  // folder of quantized weights
	Cores  int       `json:"cores"`
	Prompt int       `json:"prompt"` // tokens
	Exec   time.Time `json:"exec"`   // when the parent started the child
	// Node is a directory for a whole node that serves the model, and Request a chat
	// completion of one token for it. If they are empty, only an engine runs.
	Node    string          `json:"node,omitempty"`
	Request json.RawMessage `json:"request,omitempty"`
}

// stage is a part of a start.
type stage struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
}

// Stages of a start, in their order.
const (
	stageProcess = "process" // exec to the first line of Go
	stageOpen    = "open"    // headers, tokenizer, digest
	stageLoad    = "load"    // weights in the order of the kernels
	stageEngine  = "engine"  // backend, KV pool, scheduler
	stagePrompt  = "prompt"  // prefill
	stageNode    = "node"    // stores, planes, frontend
	stageServe   = "serve"   // from the declaration of a worker to its first token over HTTP
)

// Child is the main function of a process that a benchmark starts: the command line of
// [Options.Child] followed by spec. It writes its results to stdout.
func Child(ctx context.Context, spec string, stdin io.Reader, stdout io.Writer) error {
	reached := time.Now()
	var s childSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return fmt.Errorf("benchmark child: %w", err)
	}
	switch {
	case s.FirstToken != nil:
		return s.FirstToken.run(ctx, reached, stdout)
	case s.Spin > 0:
		return spin(s.Spin, stdin, stdout)
	case s.Companion != nil:
		return s.Companion.run(ctx, stdin, stdout)
	case s.Fleet != nil:
		return s.Fleet.run(ctx, stdin, stdout)
	}
	return fmt.Errorf("benchmark child: %w: %s", errNoWork, spec)
}

// errNoWork is returned for a specification without work.
var errNoWork = errors.New("nothing to do")

// clock measures the times of stages.
type clock struct {
	at     time.Time
	stages []stage
}

func (c *clock) done(name string) {
	now := time.Now()
	c.stages, c.at = append(c.stages, stage{name, now.Sub(c.at)}), now
}

func (f *firstToken) run(ctx context.Context, reached time.Time, stdout io.Writer) error {
	c := &clock{at: reached, stages: []stage{{stageProcess, reached.Sub(f.Exec)}}}
	start := f.engine
	if f.Node != "" {
		start = f.node
	}
	stop, err := start(ctx, c)
	if err != nil {
		return err
	}
	defer stop()
	if err := json.NewEncoder(stdout).Encode(c.stages); err != nil {
		return fmt.Errorf("benchmark child: %w", err)
	}
	return nil
}

// engine starts an engine alone.
func (f *firstToken) engine(ctx context.Context, c *clock) (stop func(), err error) {
	log := slog.New(slog.DiscardHandler)
	format, err := formatNamed(cmp.Or(f.Format, "bf16"))
	if err != nil {
		return nil, err
	}
	m, err := format.open(ctx, f.Model, f.Cache, log)
	if err != nil {
		return nil, err
	}
	c.done(stageOpen)
	w, err := loadWeights(m, f.Cores)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	c.done(stageLoad)
	r, err := w.rig(ctx, f.Prompt/rigBlockSize+2, log)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	stop = func() {
		r.close()
		_ = m.Close() // it was only read
	}
	c.done(stageEngine)
	if _, err := r.generate(ctx, generation{tokens: r.prompt(f.Prompt), output: 1}); err != nil {
		stop()
		return nil, err
	}
	c.done(stagePrompt)
	return stop, nil
}

// node starts a whole node and sends requests until it answers.
func (f *firstToken) node(ctx context.Context, c *clock) (stop func(), err error) {
	format, err := formatNamed(cmp.Or(f.Format, "bf16"))
	if err != nil {
		return nil, err
	}
	spec := nodeSpec{dir: f.Node, decode: 1, model: f.Model, quantize: format.quantize, quantized: f.Cache, cores: f.Cores}
	n, err := startNode(ctx, spec, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	client := newSSEClient()
	stop = func() {
		client.close()
		n.close()
	}
	c.done(stageNode)
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTimeout, errNotUp)
	defer cancel()
	for at := client.to(n.url); ; {
		a, err := at.answer(ctx, question{body: f.Request, output: 1})
		if err == nil && a.tokens == 1 {
			c.done(stageServe)
			return stop, nil
		}
		if failed := n.failure(ctx); failed != nil {
			stop()
			return nil, failed
		}
		select {
		case <-ctx.Done():
			stop()
			return nil, errors.Join(context.Cause(ctx), err)
		case <-time.After(nodePoll):
		}
	}
}

// spin keeps n processors busy until stdin ends. It writes a line when it has begun.
func spin(n int, stdin io.Reader, stdout io.Writer) error {
	var stop atomic.Bool
	ended := make(chan struct{})
	for range n {
		go func() {
			for !stop.Load() {
			}
			ended <- struct{}{}
		}()
	}
	_, err := fmt.Fprintln(stdout, "spinning")
	if err == nil {
		_, err = io.Copy(io.Discard, stdin)
	}
	stop.Store(true)
	for range n {
		<-ended
	}
	return err
}

// child is a started process. It ends with ctx, or when stdin is closed.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader // of its standard output
}

// errNoChild is returned when the program does not know its own command line.
var errNoChild = errors.New("this program cannot start itself a second time")

func (s *session) startChild(ctx context.Context, spec childSpec) (*child, error) {
	if len(s.opts.Child) == 0 {
		return nil, errNoChild
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("start benchmark child: %w", err)
	}
	args := append(append([]string(nil), s.opts.Child[1:]...), string(text))
	c := &child{cmd: exec.CommandContext(ctx, s.opts.Child[0], args...)}
	c.cmd.WaitDelay = stopStep
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start benchmark child: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start benchmark child: %w", err)
	}
	c.lines = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start benchmark child: %w", err)
	}
	return c, nil
}

// line reads a line of the child's output.
func (c *child) line() (string, error) {
	text, err := c.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read from benchmark child: %w", err)
	}
	return text, nil
}

// end closes the child's standard input and waits for it to exit.
func (c *child) end() error {
	_ = c.stdin.Close() // the process may have ended
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("benchmark child: %w", err)
	}
	return nil
}
