package whatif

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/dynlab"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settings"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/mooncake"
	"github.com/dynctl/dynctl/internal/topofile"
)

// What is less load than this says nothing about a topology.
const (
	fewestRequests = 20
	shortestSpan   = 30 * time.Second
)

const action = "cannot say what would happen"

// Options are the flags of commands that show what another topology would have done.
type Options struct {
	WhatIf  bool
	Profile string
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet, does string) {
	fs.BoolVar(&o.WhatIf, "what-if", false, "simulate the load of the last hour on the topology as it is and as it would be, and "+does)
	fs.StringVar(&o.Profile, "profile", "", "with --what-if, profile of the workers (default: what the cluster has learned)")
	command.Grouped(fs, "What if", "what-if", "profile")
	command.Rare(fs, "profile")
}

// Show simulates both topologies and prints them beside each other.
func (o *Options) Show(ctx context.Context, s *session.Session, c *client.Cluster, v client.View, now, next topofile.File) error {
	if _, err := dynlab.Find(s, action); err != nil {
		return err
	}
	out, args := s.Out.Streams.Out, []string{"simulate"}
	switch s.Out.Format {
	case "table", "wide":
	case "json":
		out, args = s.Out.Streams.Data(), append(args, "--json")
	default:
		return &exit.UsageError{Text: "--what-if: a simulation is printed as a table or as JSON"}
	}
	dir, err := os.MkdirTemp("", "dynctl-what-if-")
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system clears what is left
	place := func(name string, content []byte) error {
		path := filepath.Join(dir, name)
		flag := map[string]string{"now": "file", "next": "compare", "load.jsonl": "trace", "profile.json": "profile"}[name]
		args = append(args, "--"+flag+"="+path)
		return os.WriteFile(path, content, 0o600)
	}
	trace, err := Load(ctx, s, c, v, now.Topology.Model.Name, action)
	if err != nil {
		return err
	}
	errs := []error{place("load.jsonl", trace)}
	for name, f := range map[string]topofile.File{"now": now, "next": next} {
		text, err := f.YAML()
		errs = append(errs, err, place(name, text))
	}
	if o.Profile != "" {
		args = append(args, "--profile="+s.Env.Path(o.Profile))
	} else {
		text, err := Learned(ctx, c, action)
		if err != nil {
			return err
		}
		errs = append(errs, place("profile.json", text))
	}
	if err := errors.Join(errs...); err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	workers, devices := max(now.Topology.Prefill+now.Topology.Decode, next.Topology.Prefill+next.Topology.Decode), 0
	for _, n := range v.Nodes {
		devices += len(n.Devices)
	}
	if devices > 0 && devices < workers {
		args = append(args, fmt.Sprintf("--shared-devices=%d", devices))
		s.Out.Note("up to %s share %s: they compute in turns", human.Plural(workers, "worker"), human.Plural(devices, "device"))
	}
	all, err := settings.Now(ctx, c)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	for _, setting := range all {
		target, known := map[string]string{"planner.ttft": "ttft", "planner.itl": "itl"}[setting.Setting]
		if d, err := config.ParseDuration(fmt.Sprint(setting.Effective)); known && err == nil && d > 0 {
			args = append(args, fmt.Sprintf("--%s=%s", target, d))
		}
	}
	return dynlab.Run(ctx, s, action, out, args...)
}

// Load returns the load of the last hour of a model as a trace, if it is enough; action begins the message if not.
func Load(ctx context.Context, s *session.Session, c *client.Cluster, v client.View, model, action string) ([]byte, error) {
	l, err := c.RecordedLoad(ctx, v, 0)
	if err != nil {
		return nil, &exit.Failure{Action: action, Err: err}
	}
	trace, _ := l.Trace(model)
	span := time.Duration(0)
	if n := len(trace); n > 0 {
		span = trace[n-1].At
	}
	if len(trace) < fewestRequests || span < shortestSpan {
		f := &exit.Failure{
			Action: action, Err: fmt.Errorf("too little was seen: %s of %s answered, over %s; at least %d over %s are needed", human.Plural(len(trace), "request"), model, span.Round(time.Second), fewestRequests, shortestSpan),
			Tries: []string{"dynctl bench --rate 2 --duration 1m   for some load", "dynctl simulate --trace FILE   with another load"},
		}
		if len(l.Off) > 0 {
			f.Facts = append(f.Facts, "frontend.record_load is false at "+strings.Join(l.Off, ", "))
		}
		return nil, f
	}
	for _, n := range l.Off {
		s.Out.Warn("frontend.record_load is false at %s: what it served is not simulated", n)
	}
	for _, n := range l.Silent {
		s.Out.Warn("no answer from the frontend of %s: what it served is not simulated", n)
	}
	var b bytes.Buffer
	if err := mooncake.Write(&b, trace); err != nil {
		return nil, &exit.Failure{Action: action, Err: err}
	}
	return b.Bytes(), nil
}

// Learned returns the profile that the cluster has learned; action begins the message if there is none.
func Learned(ctx context.Context, c *client.Cluster, action string) ([]byte, error) {
	l, err := c.LearnedProfile(ctx)
	if err != nil {
		f := &exit.Failure{Action: action, Err: err}
		if errors.Is(err, client.ErrNoProfile) {
			f.Tries = []string{"--profile FILE", "dynctl bench   for some load"}
		}
		return nil, f
	}
	var b bytes.Buffer
	if err := l.Profile.Write(&b); err != nil {
		return nil, &exit.Failure{Action: action, Err: err}
	}
	return b.Bytes(), nil
}
