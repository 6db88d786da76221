package cli

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
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/topofile"
)

// upCommand starts a cluster, or changes a running one.
type upCommand struct {
	prefill, decode int
	agents          int
	model, served   string
	tool, reasoner  string // names of formats
	quantize        string // format of the weights; "none" as they are stored
	engine          cluster.EngineSpec
	itlTarget       time.Duration // of engine, as written
	speculative     string
	port            int
	host            string // at which other machines reach this one
	timeout         time.Duration
	noWait, dryRun  bool
	mode            string

	file      string   // a topology file, or "-"
	sets      []string // fields of it
	placement string
	why       string // somebody declares this
	yes       bool

	read   topofile.File // what file holds
	dir    string        // where relative paths of it begin
	home   string
	reason string

	given func(flag string) bool // on the command line
}

func (f *factory) up() *cobra.Command {
	o := &upCommand{}
	cmd := f.command(verb{
		use: "up", short: "Start a cluster on this machine, or change a running one", group: groupRun, changes: true,
		long: `When no cluster of that name runs, dynamod processes are started in the background, the
first of them with etcd and NATS inside. Then the topology is declared, and the command
returns when all workers serve and the frontend lists the model. What is not given
stays as it is declared, also in a cluster that crashed and starts again; what changes is
printed first, and what the nodes cannot carry out is refused. ctrl-c stops watching only.

A topology file (-f) says everything that can be declared, settings at run time included;
what it leaves out is at its default. Flags and --set FIELD=VALUE win over it. Applying it
again changes nothing; dynctl diff shows what it would change, dynctl help topology lists
its fields, dynctl rollback takes it back.

With several agents, prefill workers go to the last ones, so that KV blocks cross from
process to process. With --etcd-endpoints, or after dynctl join, the agents run elsewhere and
only the topology is declared.`,
		examples: []string{
			"dynctl up                                  # the built-in model, 1 prefill and 1 decode worker",
			"dynctl up --prefill 2 --decode 4 --model ~/models/qwen3-0.6b --dry-run",
			"dynctl up -f topology.yaml --set decode=6  # what is written in a file",
		},
		see: []string{"dynctl diff", "dynctl down", "dynctl scale", "dynctl top"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&o.file, "file", "f", "", "topology file, - for standard input")
	fs.StringArrayVar(&o.sets, "set", nil, "field of a topology and its value, as decode.engine.max_num_seqs=8; may be given again")
	countVar(fs, &o.prefill, "prefill", 1, "prefill workers; 0 lets decode workers do both")
	countVar(fs, &o.decode, "decode", 1, "decode workers")
	countVar(fs, &o.agents, "agents", 1, "dynamod processes on this machine")
	fs.StringVar(&o.engine.Device, "device", "", "where workers run, as cpu or cpu:0,cpu:1 (default: the best)")
	choiceVar(fs, &o.placement, "placement", "", "", "how workers are distributed over nodes", cluster.Placements())
	fs.StringVar(&o.engine.Backend, "backend", "", "what computes: "+strings.Join(cluster.Backends(), ", ")+" (default: what the device is)")
	fs.StringVar(&o.host, "advertise-host", "", "address of this machine, for other machines to join")
	countVar(fs, &o.port, "port", 8000, "port of the HTTP frontend; 0 takes a free one")
	fs.StringVar(&o.model, "model", "", "model directory, or a GGUF file (default: the built-in model)")
	fs.StringVar(&o.served, "served-model-name", "", "what clients put into \"model\" (default: the name of the path)")
	fs.StringVar(&o.quantize, "quantize", "", "quantize weights: "+formats(cluster.WeightFormats())+" (default: as they are stored)")
	fs.StringVar(&o.tool, "tool-parser", "", "how the model writes tool calls: "+formats(parse.ToolParsers())+" (default: as its chat template shows)")
	fs.StringVar(&o.reasoner, "reasoning-parser", "", "how the model marks reasoning: "+formats(parse.ReasoningParsers())+" (default: as its chat template shows)")
	countVar(fs, &o.engine.KVBlocks, "kv-blocks", 0, "KV blocks of each worker (default: by the free memory)")
	countVar(fs, &o.engine.BlockSize, "block-size", 0, "tokens in a KV block: 16, 32, 64 or 128 (default 64)")
	fs.StringVar(&o.engine.KVDType, "kv-cache-dtype", "", "type of keys and values: f32, bf16, int8, or auto for f32 with weights of f32 and else bf16 (default auto)")
	countVar(fs, &o.engine.MaxModelLen, "max-model-len", 0, "tokens of a prompt with its answer (default: the model's)")
	countVar(fs, &o.engine.MaxSeqs, "max-num-seqs", 0, "sequences that a worker runs at once (default: the engine's)")
	durationVar(fs, &o.itlTarget, "itl-target", 0, "longest time between two tokens of an answer while prompts are computed beside (default 200ms; 1h turns it off)")
	fs.Lookup("itl-target").DefValue = "" // 0, the engine's: said in the text
	fs.StringVar(&o.speculative, "speculative", "", "propose tokens and verify several at a time: ngram, ngram:5 or off; changes no answer (default: off)")
	countVar(fs, &o.engine.TensorParallel, "tensor-parallel", 0, "ranks of each worker, which share the heads of each layer (default 1, on GPUs those of the device)")
	durationVar(fs, &o.timeout, "timeout", 5*time.Minute, "how long to wait")
	fs.BoolVar(&o.noWait, "no-wait", false, "return when the topology is declared, with exit code 8")
	fs.BoolVar(&o.dryRun, "dry-run", false, "print what would happen, and do nothing")
	fs.StringVar(&o.why, "why", "", "reason for the change, for dynctl rollback --list (default: this command)")
	fs.BoolVarP(&o.yes, "yes", "y", false, "do not ask before a file replaces the model")
	progressVar(fs, &o.mode)
	formerFlags(cmd, map[string]string{"served-name": "served-model-name", "kv-dtype": "kv-cache-dtype", "max-seqs": "max-num-seqs"})
	grouped(fs, "Topology", "file", "set", "prefill", "decode", "agents", "device", "placement", "port", "advertise-host", "why", "yes")
	grouped(fs, "Engine", "backend", "model", "served-model-name", "quantize", "kv-blocks", "block-size", "kv-cache-dtype", "max-model-len", "max-num-seqs", "itl-target", "speculative", "tensor-parallel", "tool-parser", "reasoning-parser")
	grouped(fs, "Waiting", "timeout", "no-wait", "dry-run", "progress")
	rare(fs, "set", "why", "yes", "placement", "backend", "served-model-name", "kv-blocks", "block-size", "kv-cache-dtype", "max-model-len", "max-num-seqs", "itl-target", "speculative", "tensor-parallel", "tool-parser", "reasoning-parser")
	_ = cmd.MarkFlagFilename("model", "gguf") // these fail for unknown flags only
	_ = cmd.MarkFlagFilename("file", "yaml", "yml")
	_ = cmd.RegisterFlagCompletionFunc("set", completeFields)
	_ = cmd.RegisterFlagCompletionFunc("placement", completeWords(cluster.Placements()...))
	_ = cmd.RegisterFlagCompletionFunc("backend", completeWords(cluster.Backends()...))
	return cmd
}

func (o *upCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	o.given = inv.cmd.Flags().Changed
	if err := o.check(inv); err != nil {
		return err
	}
	if o.dryRun {
		return o.plan(ctx, inv)
	}
	if err := o.agree(ctx, inv); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, o.timeout, errUpTimeout)
	defer cancel()
	u := newUplift(inv, o)
	defer u.close()
	res, err := u.run(waiting)
	u.show.Close()
	switch {
	case err == nil:
		return u.answer(res)
	case ctx.Err() != nil:
		return &interrupted{text: "stopped watching: " + u.goesOn(), tries: []string{"dynctl ps", "dynctl down"}, err: err}
	case errors.Is(err, errUpTimeout):
		return u.timedOut()
	}
	return err
}

// check finds mistakes before anything is started.
func (o *upCommand) check(inv *invocation) error {
	const action = "cannot start the cluster"
	switch {
	case o.agents < 1 || o.agents > maxAgents:
		return &usageError{text: fmt.Sprintf("--agents: %d is not between 1 and %d", o.agents, maxAgents)}
	case o.port > 65535:
		return &usageError{text: fmt.Sprintf("--port: %d is not between 0 and 65535", o.port)}
	case inv.external() && (o.given("agents") || o.given("port") || o.given("advertise-host")):
		return &usageError{text: "--agents, --port and --advertise-host belong to a cluster on this machine; with --etcd-endpoints, or after dynctl join, dynamod is started on each node"}
	case o.given("model") && o.model == "":
		return &usageError{text: "--model: no directory or file given"}
	case o.given("served-model-name") && strings.TrimSpace(o.served) == "":
		return &usageError{text: "--served-model-name: no name given"}
	}
	if err := parse.CheckTool(o.tool); err != nil {
		return &usageError{text: "--tool-parser: " + err.Error()}
	}
	if err := parse.CheckReasoning(o.reasoner); err != nil {
		return &usageError{text: "--reasoning-parser: " + err.Error()}
	}
	if err := o.readEngine(); err != nil {
		return err
	}
	if o.model != "" {
		o.model = inv.path(o.model)
	}
	if err := o.readFile(inv, action); err != nil {
		return err
	}
	next, err := o.desired(cluster.Revision{}, true)
	if err == nil {
		err = o.validate(next)
	}
	if err != nil {
		return &usageError{text: flagText(err)}
	}
	// A file may be of a cluster elsewhere, whose nodes have their models.
	if path := next.Topology.Model.Path; path != "" && (o.model == path || !inv.external()) {
		if err := modelPath(path); err != nil {
			return &failure{action: action, err: err, facts: []string{"a model directory holds config.json, tokenizer.json and *.safetensors; a GGUF file holds everything"}}
		}
	}
	return nil
}

// validate names the first wrong field as the command line has it: by its flag or, where
// fields are given, by its path.
func (o *upCommand) validate(r cluster.Revision) error {
	problems := topofile.File{Revision: r}.Problems()
	if len(problems) > 0 && (o.file != "" || len(o.sets) > 0) {
		return &usageError{text: problems[0].Error()}
	}
	return r.Topology.Validate()
}

// readEngine takes over the limits of engines that have a form of their own on the
// command line.
func (o *upCommand) readEngine() (err error) {
	if o.itlTarget%time.Millisecond != 0 {
		return &usageError{text: fmt.Sprintf("--itl-target: %s is not a number of whole milliseconds", o.itlTarget)}
	}
	o.engine.ITLTargetMS = o.itlTarget.Milliseconds()
	if o.engine.Speculative, err = cluster.ParseSpeculative(o.speculative); err != nil {
		return &usageError{text: flagText(err)}
	}
	return nil
}

const maxAgents = 64

// formats lists the names of formats for a help text.
func formats(list []string) string { return strings.Join(list, ", ") + " or " + parse.None }

// flagText turns "block_size: 7 is ..." into "--block-size: 7 is ...".
func flagText(err error) string {
	var usage *usageError
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

var errUpTimeout = errors.New("the time is over")
