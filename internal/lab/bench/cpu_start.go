package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/model"
)

const (
	keyTotal     = "total_ms"
	keyPeerTotal = "peer_s"
)

// measureStart measures the time from exec to the first token, for an engine and for a
// whole node. The files have just been read, so they are in the page cache.
func (c *cpuSection) measureStart(ctx context.Context, shape cpuShape, format cpuFormat, dir, cache string) error {
	if !c.opts.wants(kindStart) {
		return nil
	}
	if len(c.session.opts.Child) == 0 {
		c.note("Starts are left out: %v.", errNoChild)
		return nil
	}
	request, err := startRequest(ctx, dir, c.scale.cpu.startPrompt)
	if err != nil {
		return err
	}
	for _, threads := range c.opts.threads() {
		f := firstToken{Model: dir, Format: format.name, Cache: cache, Cores: threads, Prompt: c.scale.cpu.startPrompt}
		name := fmt.Sprintf("%s, %s, %s, ", shape.name, format.name, threadsText(threads))
		alone := Case{name + "engine alone", func(ctx context.Context) (Sample, error) { return c.start(ctx, f) }}
		node := Case{name + "whole node, over HTTP", func(ctx context.Context) (_ Sample, err error) {
			f := f
			f.Request = request
			if f.Node, err = os.MkdirTemp(c.tmp, "node-"); err != nil {
				return nil, fmt.Errorf("start node: %w", err)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(f.Node)) }()
			return c.start(ctx, f)
		}}
		res, err := c.takeTurns(ctx, "cpu, "+name+"start", turns{c.scale.cpu.starts, time.Minute}, []Case{alone, node})
		if err != nil {
			return err
		}
		rows := res.table("", "", startColumns()).Rows
		if s, ok := peerStarts[peerKey{shape.name, format.name, kindStart}]; ok && threads == 2 {
			rows[1].Figures[keyPeerTotal] = constant(s)
		}
		c.starts = append(c.starts, rows...)
	}
	return nil
}

// startRequest makes a chat completion whose prompt has at least the given number of
// tokens. The text is always the same.
func startRequest(ctx context.Context, dir string, prompt int) (json.RawMessage, error) {
	m, err := model.Open(dir, model.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = m.Close() }() // it was only read
	ask, err := newAsker(m)
	if err != nil {
		return nil, err
	}
	q, err := ask.question(ctx, prompt, 1)
	return q.body, err
}

// start runs a child and reads the durations of its stages.
func (c *cpuSection) start(ctx context.Context, f firstToken) (Sample, error) {
	f.Exec = time.Now()
	p, err := c.startChild(ctx, childSpec{FirstToken: &f})
	if err != nil {
		return nil, err
	}
	line, err := p.line()
	took := time.Since(f.Exec)
	if err := errors.Join(p.end(), err); err != nil {
		return nil, err
	}
	var stages []stage
	if err := json.Unmarshal([]byte(line), &stages); err != nil {
		return nil, fmt.Errorf("stages of a start: %w", err)
	}
	s := Sample{keyTotal: float64(took) / float64(time.Millisecond)}
	for _, st := range stages {
		s[st.Name] = float64(st.Took) / float64(time.Millisecond)
	}
	return s, nil
}

func startColumns() []Column {
	return []Column{
		{keyTotal, "exec to first token ms", ""},
		{stageProcess, "process", "exec to the first line of the program"},
		{stageOpen, "open", "headers, configuration, digest"},
		{stageLoad, "load", "weights in the order of the kernels"},
		{stagePrompt, "prompt", "prefill"},
		{stageNode, "node", "stores, planes and frontend of a node"},
		{stageServe, "serve", "from the wish for a worker to the first token over HTTP: open, load, warm up, prefill"},
		{keyPeerTotal, "peer s", "llama.cpp's server, on another machine"},
	}
}

func (c *cpuSection) startTable() Table {
	return Table{
		Name:    "Start",
		About:   "A new process each time, with its files in the page cache, to the first token of a prompt of " + strconv.Itoa(c.scale.cpu.startPrompt) + " tokens.",
		Columns: startColumns(), Rows: c.starts, Published: []string{keyPeerTotal},
	}
}
