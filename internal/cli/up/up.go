package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/whatif"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/topofile"
)

// Options starts a cluster, or changes a running one.
type Options struct {
	command.Waiting

	Session *session.Session

	Prefill, Decode, Encode     int
	Agents                      int
	Model, Served               string
	ToolParser, ReasoningParser string // names of formats
	Quantize                    string // format of the weights; "none" as they are stored
	Engine                      cluster.EngineSpec
	ITLTarget                   time.Duration // of engine, as written
	Speculative                 string
	Port                        int
	Host                        string // at which other machines reach this one
	Plane                       string // on which the nodes of this machine serve
	DryRun                      bool
	whatIf                      whatif.Options

	File      string   // a topology file, or "-"
	Set       []string // fields of it
	Placement string
	Why       string // reason for the change
	Yes       bool

	read   topofile.File // what file holds
	dir    string        // where relative paths of it begin
	home   string
	reason string

	given func(flag string) bool // on the command line
}

// Command makes dynctl up.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "up", Short: "Start a cluster on this machine, or change a running one", Group: command.GroupRun, Changes: true,
		Long: `When no cluster of that name runs, dynamod processes are started in the background, the
first of them with etcd and NATS inside. Then the topology is declared, and the command
returns when all workers serve and the frontend lists the model. What is not given
stays as it is declared, also in a cluster that crashed and starts again; what changes is
printed first, and what the nodes cannot carry out is refused. ctrl-c stops watching only.

A topology file (-f) says everything that can be declared, settings at run time included;
what it leaves out is at its default. Flags and --set FIELD=VALUE win over it. Applying it
again changes nothing; dynctl diff shows what it would change, --what-if what it would have done
with the load of the last hour, dynctl help topology lists its fields, dynctl rollback takes it back.

With several agents, prefill workers go to the last ones, so that KV blocks cross from
process to process. With --etcd-endpoints, or after dynctl join, the agents run elsewhere and
only the topology is declared.`,
		Examples: []string{
			"dynctl up                                  # the built-in model, 1 prefill and 1 decode worker",
			"dynctl up --prefill 2 --decode 4 --model ~/models/qwen3-0.6b --dry-run",
			"dynctl up -f topology.yaml --set decode=6  # what is written in a file",
		},
		See: []string{"dynctl diff", "dynctl down", "dynctl scale", "dynctl top"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&o.File, "file", "f", "", "topology file, - for standard input")
	fs.StringArrayVar(&o.Set, "set", nil, "field of a topology and its value, as decode.engine.max_num_seqs=8; may be given again")
	command.Count(fs, &o.Prefill, "prefill", 1, "prefill workers; 0 lets decode workers do both")
	command.Count(fs, &o.Decode, "decode", 1, "decode workers")
	command.Count(fs, &o.Encode, "encode", 0, "encode workers, for a model that sees images")
	command.Count(fs, &o.Agents, "agents", 1, "dynamod processes on this machine")
	fs.StringVar(&o.Engine.Device, "device", "", "where workers run, as cpu or cpu:0,cpu:1 (default: the best)")
	command.Choice(fs, &o.Placement, "placement", "", "", "how workers are distributed over nodes", cluster.Placements())
	fs.StringVar(&o.Engine.Backend, "backend", "", "what computes: "+strings.Join(cluster.Backends(), ", ")+" (default: what the device is)")
	fs.StringVar(&o.Host, "advertise-host", "", "address of this machine, for other machines to join")
	command.Choice(fs, &o.Plane, "request-plane", "", "", "how the nodes that are started serve requests (default: their own setting)", []string{config.PlaneTCP, config.PlaneHTTP, config.PlaneNATS})
	command.Count(fs, &o.Port, "port", 8000, "port of the HTTP frontend; 0 takes a free one")
	fs.StringVar(&o.Model, "model", "", "model directory, or a GGUF file (default: a built-in model)")
	fs.StringVar(&o.Served, "served-model-name", "", "what clients put into \"model\" (default: the name of the path)")
	fs.StringVar(&o.Quantize, "quantize", "", "quantize weights: "+formats(cluster.WeightFormats())+" (default: as they are stored)")
	fs.StringVar(&o.ToolParser, "tool-parser", "", "how the model writes tool calls: "+formats(parse.ToolParsers())+" (default: as its chat template shows)")
	fs.StringVar(&o.ReasoningParser, "reasoning-parser", "", "how the model marks reasoning: "+formats(parse.ReasoningParsers())+" (default: as its chat template shows)")
	command.Count(fs, &o.Engine.KVBlocks, "kv-blocks", 0, "KV blocks of each worker (default: by the free memory)")
	command.Count(fs, &o.Engine.BlockSize, "block-size", 0, "tokens in a KV block: 16, 32, 64 or 128 (default 64)")
	fs.StringVar(&o.Engine.KVDType, "kv-cache-dtype", "", "type of keys and values: f32, bf16, int8, or auto for f32 with weights of f32 and else bf16 (default auto)")
	command.Count(fs, &o.Engine.MaxModelLen, "max-model-len", 0, "tokens of a prompt with its answer (default: the model's)")
	command.Count(fs, &o.Engine.MaxSeqs, "max-num-seqs", 0, "sequences that a worker runs at once (default: the engine's)")
	command.Duration(fs, &o.ITLTarget, "itl-target", 0, "longest time between two tokens of an answer while prompts are computed beside (default 200ms; 1h turns it off)")
	fs.Lookup("itl-target").DefValue = "" // 0, the engine's: said in the text
	fs.StringVar(&o.Speculative, "speculative", "", "propose tokens and verify several at a time: ngram, ngram:5 or off; changes no answer (default: off)")
	command.Count(fs, &o.Engine.TensorParallel, "tensor-parallel", 0, "ranks of each worker, which share the heads of each layer (default 1, on GPUs those of the device)")
	o.AddFlags(fs, 5*time.Minute, "how long to wait", "the topology is declared")
	fs.BoolVar(&o.DryRun, "dry-run", false, "print what would happen, and do nothing")
	o.whatIf.AddFlags(fs, "do nothing else")
	command.Rare(fs, "what-if")
	fs.StringVar(&o.Why, "why", "", "reason for the change, for dynctl rollback --list (default: this command)")
	fs.BoolVarP(&o.Yes, "yes", "y", false, "do not ask before another model replaces the one that is served")
	command.Former(cmd, map[string]string{"served-name": "served-model-name", "kv-dtype": "kv-cache-dtype", "max-seqs": "max-num-seqs"})
	command.Grouped(fs, "Topology", "file", "set", "prefill", "decode", "encode", "agents", "device", "placement", "port", "advertise-host", "request-plane", "why", "yes")
	command.Grouped(fs, "Engine", "backend", "model", "served-model-name", "quantize", "kv-blocks", "block-size", "kv-cache-dtype", "max-model-len", "max-num-seqs", "itl-target", "speculative", "tensor-parallel", "tool-parser", "reasoning-parser")
	command.Grouped(fs, "Waiting", "dry-run")
	command.Rare(fs, "encode", "set", "why", "yes", "request-plane", "placement", "backend", "served-model-name", "kv-blocks", "block-size", "kv-cache-dtype", "max-model-len", "max-num-seqs", "itl-target", "speculative", "tensor-parallel", "tool-parser", "reasoning-parser")
	_ = cmd.MarkFlagFilename("model", "gguf") // these fail for unknown flags only
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
	_ = cmd.RegisterFlagCompletionFunc("set", declare.CompleteFields)
	_ = cmd.RegisterFlagCompletionFunc("placement", complete.Words(cluster.Placements()...))
	_ = cmd.RegisterFlagCompletionFunc("backend", complete.Words(cluster.Backends()...))
	return cmd
}

// Run starts what is missing, declares the topology and waits until it serves.
func (o *Options) Run(ctx context.Context) error {
	o.given = o.Session.Given
	if err := o.check(); err != nil {
		return err
	}
	switch {
	case o.whatIf.WhatIf:
		return o.showWhatIf(ctx)
	case o.DryRun:
		return o.plan(ctx)
	}
	if o.Session.Stopped() {
		if err := o.Session.Second(upAction); err != nil {
			return err
		}
	}
	if err := o.agree(ctx); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, o.Timeout, errUpTimeout)
	defer cancel()
	u := newUplift(o.Session, o)
	defer u.close()
	res, err := u.run(waiting)
	u.show.Close()
	switch {
	case err == nil:
		return u.answer(res)
	case ctx.Err() != nil && len(u.ended) > 0:
		return &exit.Stopped{Text: "interrupted: " + u.goesOn(), Tries: []string{"dynctl up"}, Err: err}
	case ctx.Err() != nil:
		return &exit.Stopped{Text: "stopped watching: " + u.goesOn(), Tries: []string{"dynctl ps", "dynctl down"}, Err: err}
	case errors.Is(err, errUpTimeout):
		return u.timedOut()
	}
	return err
}

// check finds mistakes before anything is started.
func (o *Options) check() error {
	const action = "cannot start the cluster"
	switch {
	case o.Agents < 1 || o.Agents > maxAgents:
		return &exit.UsageError{Text: fmt.Sprintf("--agents: %d is not between 1 and %d", o.Agents, maxAgents)}
	case o.Port > 65535:
		return &exit.UsageError{Text: fmt.Sprintf("--port: %d is not between 0 and 65535", o.Port)}
	case o.Session.External() && (o.given("agents") || o.given("port") || o.given("advertise-host") || o.given("request-plane")):
		return &exit.UsageError{Text: "--agents, --port, --advertise-host and --request-plane belong to a cluster on this machine; with --etcd-endpoints, or after dynctl join, dynamod is started on each node"}
	case o.given("model") && o.Model == "":
		return &exit.UsageError{Text: "--model: no directory or file given"}
	case o.given("served-model-name") && strings.TrimSpace(o.Served) == "":
		return &exit.UsageError{Text: "--served-model-name: no name given"}
	}
	if err := parse.CheckTool(o.ToolParser); err != nil {
		return &exit.UsageError{Text: "--tool-parser: " + err.Error()}
	}
	if err := parse.CheckReasoning(o.ReasoningParser); err != nil {
		return &exit.UsageError{Text: "--reasoning-parser: " + err.Error()}
	}
	if err := o.readEngine(); err != nil {
		return err
	}
	if path, ok := cluster.BuiltinPath(o.Model); ok {
		if o.Model = path; path == "" && o.Encode > 0 {
			return &exit.UsageError{Text: "--encode: " + cluster.BuiltinModelName + " sees no images; --model " + cluster.BuiltinVisionName + " does"}
		}
	} else if o.Model != "" {
		o.Model = o.Session.Env.Path(o.Model)
	}
	if err := o.readFile(action); err != nil {
		return err
	}
	next, err := o.desired(cluster.Revision{})
	if err == nil {
		err = o.validate(next)
	}
	if err != nil {
		return &exit.UsageError{Text: flagText(err)}
	}
	// A file may be of a cluster elsewhere, whose nodes have their models.
	if path := next.Topology.Model.Path; next.Topology.Model.Builtin() == "" && (o.Model == path || !o.Session.External()) {
		if err := modelPath(path); err != nil {
			return declare.NoModel(action, err, path, o.dir, "dynctl up --model")
		}
	}
	return nil
}

// validate names the first wrong field as the command line has it: by its flag or, where
// fields are given, by its path.
func (o *Options) validate(r cluster.Revision) error {
	problems := topofile.File{Revision: r}.Problems()
	if len(problems) > 0 && (o.File != "" || len(o.Set) > 0) {
		return &exit.UsageError{Text: problems[0].Error()}
	}
	return r.Topology.Validate()
}

// readEngine takes over the limits of engines that have a form of their own on the
// command line.
func (o *Options) readEngine() (err error) {
	if o.ITLTarget%time.Millisecond != 0 {
		return &exit.UsageError{Text: fmt.Sprintf("--itl-target: %s is not a number of whole milliseconds", o.ITLTarget)}
	}
	o.Engine.ITLTargetMS = o.ITLTarget.Milliseconds()
	if o.Engine.Speculative, err = cluster.ParseSpeculative(o.Speculative); err != nil {
		return &exit.UsageError{Text: flagText(err)}
	}
	return nil
}

const maxAgents = 64

// formats lists the names of formats for a help text.
func formats(list []string) string { return strings.Join(list, ", ") + " or " + parse.None }

// flagText turns "block_size: 7 is ..." into "--block-size: 7 is ...".
func flagText(err error) string {
	var usage *exit.UsageError
	field, rest, ok := strings.Cut(err.Error(), ":")
	if errors.As(err, &usage) || !ok || strings.Contains(field, " ") {
		return err.Error()
	}
	return "--" + strings.ReplaceAll(field, "_", "-") + ":" + rest
}

// modelPath makes sure that there can be a model at a path; dynamod looks at it
// closely.
func modelPath(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("model: %w", err)
	case !info.IsDir() && !isGGUF(path):
		return fmt.Errorf("model: %s is not a directory and not a .gguf file", path)
	case !info.IsDir():
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "config.json" || isGGUF(e.Name()) }) {
		return fmt.Errorf("model: %s has no config.json and no .gguf file", path)
	}
	return nil
}

func isGGUF(name string) bool { return strings.EqualFold(filepath.Ext(name), ".gguf") }

var errUpTimeout = errors.New("timed out")
