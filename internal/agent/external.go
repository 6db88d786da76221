package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/engines"
	"github.com/dynctl/dynctl/internal/external/kvevents"
	"github.com/dynctl/dynctl/internal/external/process"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/outside"
	"github.com/dynctl/dynctl/internal/tokenizer"
	"github.com/dynctl/dynctl/internal/undo"
	"github.com/dynctl/dynctl/internal/worker"
	"github.com/dynctl/dynctl/internal/worker/served"
)

const (
	// attachedPatience is how long an attached server may be silent before the worker fails, to
	// begin again after a pause. A server that this node starts has until its process ends.
	attachedPatience = 10 * time.Second
	// probeEvery is the pause between two looks at a server that is not ready, and probeLimit
	// bounds one.
	probeEvery = 500 * time.Millisecond
	probeLimit = 5 * time.Second
	// serverStop is how long a server has to end by itself.
	serverStop = 20 * time.Second
)

// loadServer brings a server of another engine up, or finds it, and waits until it is ready.
// awaits is told what the worker waits for.
func (a *Agent) loadServer(ctx context.Context, as cluster.Assignment, log *slog.Logger, awaits func(string)) (_ *worker.Loaded, err error) {
	log = log.With("worker", as.Name)
	var back undo.Stack
	defer func() {
		if err != nil {
			back.Run(serverStop, log)
		}
	}()
	loaded, err := a.describeServed(as.Model)
	if err != nil {
		return nil, err
	}
	if !as.Role.HoldsKV() {
		as.Engine.Server.Connector, as.Engine.Server.Events = wire.ConnectorNone, cluster.EventsOff
	}
	cfg := engines.Config{Engine: as.Engine, Role: as.Role, URL: as.Engine.Server.URL, Model: as.Engine.Server.Model, Log: log}
	cfg.Asleep = as.Engine.Server.Attached() && as.Asleep > 0 // one that this node starts is awake
	if cfg.Model == "" {
		cfg.Model = as.Model.Name
	}
	sc := &served.Config{
		Backend: as.Engine.Backend, Model: cfg.Model, URL: cfg.URL, Connector: cfg.Connector(), Host: as.Engine.Server.Host,
		BlockSize: a.models.engineSpec(as.Engine).BlockSize, Log: log,
	}
	listen := strings.HasPrefix(cfg.Engine.Server.Events, "tcp://*:") // the server connects
	ranks := 1
	if !as.Engine.Server.Attached() {
		if err := a.mayStart(as.Engine.Server); err != nil {
			return nil, err
		}
		plan, err := a.startServer(as, &cfg, sc, &back, log)
		if err != nil {
			return nil, err
		}
		listen, ranks = plan.Listen, plan.Ranks
	}
	if sc.Engine, err = engines.New(cfg); err != nil {
		return nil, err
	}
	back.Push("close the connections to the server", func(context.Context) error {
		sc.Engine.Close()
		return nil
	})
	var events *followedEvents
	if listen {
		if events, err = serverEvents(cfg.Engine, sc, ranks, true, loaded.Card.HashSeed, log); err != nil {
			return nil, err
		}
		back.Push("end listening for KV events", func(context.Context) error {
			events.Close()
			return nil
		})
	}
	if sc.Facts, err = a.awaitServer(ctx, as, sc, awaits); err != nil {
		return nil, err
	}
	if loaded.Card.ModelInput == cluster.InputTokens {
		if sc.Tokenizer, err = tokenizer.Load(loaded.Files[chat.TokenizerFile]); err != nil {
			return nil, err
		}
		if sc.Facts.MaxModelLen == 0 && loaded.Card.ContextLength == 0 {
			return nil, errors.New("neither the server nor the model's folder (config.json) tells how long prompts may be: serve the model without a folder, so that the server gets the clients' own requests")
		}
	}
	if events == nil {
		if events, err = serverEvents(cfg.Engine, sc, sc.Facts.Ranks, false, loaded.Card.HashSeed, log); err != nil {
			return nil, err
		}
	}
	if events != nil {
		if sc.Facts.Parents[sc.Model] != "" {
			events.Serves(sc.Model)
		}
		sc.Events = events
	}
	loaded.Server = sc
	loaded.Release = func() { back.Run(serverStop, log) }
	return loaded, nil
}

// mayStart refuses commands that this node does not run.
func (a *Agent) mayStart(x cluster.External) error {
	switch allowed := a.cfg.Node.ServerCommands; {
	case x.Attached(), allowed == config.CommandsAllow, allowed != config.CommandsRefuse && onLoopback(a.cfg.Node.AdvertiseHost):
		return nil
	}
	return errors.New("this node starts no servers by commands of topologies: allow it with node.server_commands: allow, or attach a server that runs")
}

// startServer starts the server of a worker and completes how it is reached.
func (a *Agent) startServer(as cluster.Assignment, cfg *engines.Config, sc *served.Config, back *undo.Stack, log *slog.Logger) (process.Launch, error) {
	plan, err := process.Plan(process.Need{Backend: as.Engine.Backend, Role: as.Role, Server: as.Engine.Server, Host: a.cfg.Node.AdvertiseHost})
	if err != nil {
		return plan, err
	}
	// The server must not see other devices than those of its worker.
	if gpus, ok := strings.CutPrefix(as.Device, "gpu:"); ok && !slices.ContainsFunc(plan.Env, func(line string) bool { return strings.HasPrefix(line, visibleDevices) }) {
		plan.Env = append(plan.Env, visibleDevices+strings.ReplaceAll(gpus, "+", ","))
	}
	log.Info("starting the server", "backend", as.Engine.Backend, "command", strings.Join(plan.Words, " "), "url", plan.URL)
	p, err := process.Start(process.Config{Words: plan.Words, Env: plan.Env, Log: log})
	if err != nil {
		return plan, err
	}
	back.Push("stop the server", p.Stop)
	sc.Exited, sc.Exit = p.Done(), p.Err
	cfg.URL, sc.URL = plan.URL, plan.URL
	x := &cfg.Engine.Server
	x.BootstrapPort = cmp.Or(plan.BootstrapPort, x.BootstrapPort)
	if x.Events != cluster.EventsOff {
		x.Events, x.Replay = plan.Events, plan.Replay
	}
	return plan, nil
}

// visibleDevices begins the line that says which GPUs a process sees.
const visibleDevices = "CUDA_VISIBLE_DEVICES="

// serverEvents makes what follows the KV events of a server, nil if it tells none. If the server
// connects to the node, the node listens from now on: a server that starts may give up soon.
func serverEvents(spec cluster.EngineSpec, sc *served.Config, ranks int, listen bool, seed uint64, log *slog.Logger) (*followedEvents, error) {
	e := &followedEvents{endpoint: spec.Server.Events}
	cfg := kvevents.Config{
		Endpoint: spec.Server.Events, Replay: spec.Server.Replay, Listen: listen, Ranks: max(ranks, 1), BlockSize: sc.BlockSize, HashSeed: seed, Sink: e, Log: log,
	}
	if d, ok := sc.Engine.(external.EventQueue); ok && cfg.Endpoint == "" {
		cfg.Drain, e.endpoint = d.DrainEvents, sc.URL
	}
	if cfg.Endpoint == cluster.EventsOff || cfg.Endpoint == "" && cfg.Drain == nil {
		return nil, nil
	}
	var err error
	e.Follower, err = kvevents.New(cfg)
	return e, err
}

// followedEvents are the events of a server.
type followedEvents struct {
	*kvevents.Follower
	engine.KVSink
	endpoint string
}

// Tell implements served.Events.
func (e *followedEvents) Tell(sink engine.KVSink) { e.KVSink = sink }

// Status implements served.Events.
func (e *followedEvents) Status() cluster.ServerEvents {
	f := e.Figures()
	return cluster.ServerEvents{
		Endpoint: e.endpoint, Publishers: f.Publishers, Batches: f.Batches, Events: f.Events, Gaps: f.Gaps, Replays: f.Replays, Restarts: f.Restarts,
		Forgotten: f.Forgotten, Unknown: f.Unknown, Undecodable: f.Undecodable, Ignored: f.Ignored, Blocks: f.Blocks,
	}
}

// awaitServer waits until a server is ready.
func (a *Agent) awaitServer(ctx context.Context, as cluster.Assignment, sc *served.Config, awaits func(string)) (external.Facts, error) {
	begin := time.Now()
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for {
		probe, cancel := context.WithTimeout(ctx, probeLimit)
		f, err := sc.Engine.Probe(probe)
		cancel()
		switch {
		case err == nil:
			return f, nil
		case ctx.Err() != nil:
			return f, context.Cause(ctx)
		case !errors.Is(err, external.ErrNotReady) && !errors.Is(err, context.DeadlineExceeded):
			return f, err
		case as.Engine.Server.Attached() && time.Since(begin) > attachedPatience:
			return f, err
		}
		awaits(err.Error())
		select {
		case <-t.C:
		case <-sc.Exited:
			return f, sc.Exit()
		case <-ctx.Done():
			return f, context.Cause(ctx)
		}
	}
}

// describeServed describes the model of a server. With a folder, frontends make prompts of tokens;
// if the whole model is there, its workers and those with the built-in engine are
// interchangeable. Without one, only the server tokenizes.
func (a *Agent) describeServed(spec cluster.ModelSpec) (*worker.Loaded, error) {
	if spec.Path == "" {
		sum := sha256.Sum256([]byte(spec.Name))
		return &worker.Loaded{Card: cluster.ModelCard{
			DisplayName: spec.Name, Digest: "text:" + hex.EncodeToString(sum[:]), HashSeed: cluster.DefaultHashSeed,
			ModelType: "Chat | Completions", ModelInput: cluster.InputText,
		}}, nil
	}
	m, problems := model.Examine(spec.Path, model.Options{Log: a.log})
	defer func() { _ = m.Close() }() // it was only read
	if len(problems) > 0 {
		a.log.Info("the folder has no whole model: answers of its servers go on only at servers with the same folder", "model", spec.Path, "why", problems[0])
		card, files, err := outside.Model{Name: spec.Name, Dir: spec.Path}.Describe()
		if err != nil {
			return nil, fmt.Errorf("tokenizer of %s: %w", spec.Path, err)
		}
		card.Runtime, card.ContextLength = cluster.RuntimeConfig{}, m.Config().MaxContext
		return &worker.Loaded{Card: card, Files: files}, nil
	}
	if _, err := processor(m); err != nil {
		return nil, err
	}
	l := &worker.Loaded{Files: map[string][]byte{}, Card: cluster.ModelCard{
		DisplayName: spec.Name, Digest: m.Digest(), HashSeed: cluster.DefaultHashSeed, ContextLength: m.Config().MaxContext, ModelType: "Chat | Completions", ModelInput: cluster.InputTokens,
	}}
	for _, f := range m.Files() {
		l.Card.Files = append(l.Card.Files, cluster.CardFile{Name: f.Name, SHA256: f.SHA256, Size: f.Size})
		l.Files[f.Name] = f.Data
	}
	return l, nil
}
