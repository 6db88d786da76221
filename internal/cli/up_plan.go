package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/topofile"
)

// errOtherModel is returned when a running cluster serves another model.
var errOtherModel = errors.New("it serves another model")

// spec is the model that the command line names.
func (o *upCommand) spec() cluster.ModelSpec {
	return cluster.ModelSpec{
		Name: cmp.Or(o.served, topofile.ModelName(o.model)), Path: o.model,
		ToolParser: o.tool, ReasoningParser: o.reasoner, Quantize: o.weights(),
	}
}

// weights is the format that the weights shall have, empty for that in which they are
// stored.
func (o *upCommand) weights() string {
	if o.quantize == parse.None {
		return ""
	}
	return o.quantize
}

// desired is what to declare where now is declared. A file says all of it. Without one, where
// workers are declared, only what was given changes, also when the cluster was just started
// after it had ended without a down; where none are, the command line and its defaults
// decide. The settings at run time stay then.
func (o *upCommand) desired(now cluster.Revision, fresh bool) (cluster.Revision, error) {
	f := topofile.Of(now)
	t := &f.Topology
	serving := t.Prefill+t.Decode > 0
	switch {
	case o.file != "":
		f = o.read.Clone()
		o.nameModel(&t.Model)
		o.override(t)
	case !serving:
		*t = cluster.Topology{Model: o.spec(), Engine: o.engine, Prefill: o.prefill, Decode: o.decode, Placement: cluster.Placement(o.placement)}
	default:
		o.nameModel(&t.Model)
		o.override(t)
	}
	for _, assignment := range o.sets {
		if err := f.Set(assignment, o.source()); err != nil {
			return now, fmt.Errorf("--set %w", err)
		}
	}
	f.Complete()
	if was := now.Topology.Model; o.file == "" && serving && !fresh && (t.Model.Name != was.Name || t.Model.Path != was.Path) {
		return now, errOtherModel
	}
	next := f.Onto(now)
	next.Topology.Reason = o.reason
	return next, nil
}

// nameModel takes over the model that was given.
func (o *upCommand) nameModel(m *cluster.ModelSpec) {
	switch {
	case o.given("model"):
		m.Name, m.Path = o.spec().Name, o.spec().Path
	case o.given("served-model-name"):
		m.Name = o.served
	}
}

// override changes what was given.
func (o *upCommand) override(t *cluster.Topology) {
	for flag, change := range map[string]func(){
		"prefill":          func() { t.Prefill = o.prefill },
		"decode":           func() { t.Decode = o.decode },
		"placement":        func() { t.Placement = cluster.Placement(o.placement) },
		"backend":          func() { t.Engine.Backend = o.engine.Backend },
		"device":           func() { t.Engine.Device = o.engine.Device },
		"kv-blocks":        func() { t.Engine.KVBlocks = o.engine.KVBlocks },
		"block-size":       func() { t.Engine.BlockSize = o.engine.BlockSize },
		"kv-cache-dtype":   func() { t.Engine.KVDType = o.engine.KVDType },
		"max-model-len":    func() { t.Engine.MaxModelLen = o.engine.MaxModelLen },
		"max-num-seqs":     func() { t.Engine.MaxSeqs = o.engine.MaxSeqs },
		"tensor-parallel":  func() { t.Engine.TensorParallel = o.engine.TensorParallel },
		"itl-target":       func() { t.Engine.ITLTargetMS = o.engine.ITLTargetMS },
		"speculative":      func() { t.Engine.Speculative = o.engine.Speculative },
		"tool-parser":      func() { t.Model.ToolParser = o.tool },
		"reasoning-parser": func() { t.Model.ReasoningParser = o.reasoner },
		"quantize":         func() { t.Model.Quantize = o.weights() },
	} {
		if o.given(flag) {
			change()
		}
	}
}

// otherModel is the error about a cluster that serves something else.
func (o *upCommand) otherModel(name string, now cluster.Topology) error {
	path := now.Model.Path
	if path == "" {
		path = "built-in"
	}
	flags := ""
	if o.given("model") {
		flags += " --model " + shellQuote(o.model)
	}
	if o.given("served-model-name") {
		flags += " --served-model-name " + shellQuote(o.served)
	}
	return &failure{
		action: fmt.Sprintf("cannot serve %s in cluster %s", o.spec().Name, name), err: errOtherModel,
		facts: []string{fmt.Sprintf("serving: %s (%s) on %s", now.Model.Name, path, shape(now.Prefill, now.Decode))},
		tries: []string{
			fmt.Sprintf("dynctl down -c %s && dynctl up -c %s%s", name, name, flags),
			fmt.Sprintf("dynctl up -c %s-2 --port 8001%s   for a second cluster", name, flags),
		},
	}
}

// agentName is the name of agent i, from 1, of a namespace that is not the one for which
// the cluster was started.
func agentName(namespace string, i int) string { return namespace + "-" + nodeName(i) }

// nodeName is the name of agent i, from 1.
func nodeName(i int) string { return "node-" + strconv.Itoa(i) }

// nodeRoles returns what each of n agents prefers: with prefill and several agents,
// the last ones take prefill in proportion, so that transfers cross a process
// border, and the others decode. An empty role means no preference.
func nodeRoles(n, prefill, decode int) []cluster.Role {
	roles := make([]cluster.Role, n)
	if n < 2 || prefill == 0 {
		return roles
	}
	k := int(math.Round(float64(n*prefill) / float64(prefill+decode)))
	k = min(max(k, 1), n-1)
	for i := range roles {
		roles[i] = cluster.RoleDecode
		if i >= n-k {
			roles[i] = cluster.RolePrefill
		}
	}
	return roles
}

// firstArgs are the arguments of the dynamod that hosts the stores.
func (o *upCommand) firstArgs(inv *invocation, role cluster.Role) []string {
	args := o.commonArgs(inv, inv.cfg.Namespace, nodeName(1), role)
	if inv.cfg.NATS.URL != "" {
		args = append(args, "--nats-url="+inv.cfg.NATS.URL)
	}
	if o.given("port") {
		args = append(args, "--frontend-port="+strconv.Itoa(o.port))
	}
	return args
}

// agentArgs are those of any other dynamod.
func (o *upCommand) agentArgs(inv *invocation, name string, role cluster.Role, e statedir.Endpoints) []string {
	namespace := inv.cfg.Namespace
	if e.Namespace != "" && !inv.named {
		namespace = e.Namespace
	}
	args := append(o.commonArgs(inv, namespace, name, role), "--etcd-endpoints="+strings.Join(e.Etcd, ","))
	if name == agentName(namespace, 1) { // the stores' own frontend serves their namespace
		port := 0
		if o.given("port") {
			port = o.port
		}
		args = append(args, "--frontend-port="+strconv.Itoa(port))
	} else {
		args = append(args, "--frontend-enabled=false")
	}
	if e.NATS != "" {
		args = append(args, "--nats-url="+e.NATS)
	}
	return args
}

func (o *upCommand) commonArgs(inv *invocation, namespace, name string, role cluster.Role) []string {
	args := []string{"--cluster=" + inv.cfg.Cluster, "--namespace=" + namespace, "--state-dir=" + inv.cfg.StateDir, "--node-name=" + name}
	if role != "" {
		args = append(args, "--node-roles="+string(role))
	}
	if inv.cfg.SecretFile != "" {
		args = append(args, "--secret-file="+inv.path(inv.cfg.SecretFile))
	}
	if o.given("advertise-host") {
		args = append(args, "--node-advertise-host="+o.host)
	}
	return args
}

// plan prints what would happen.
func (o *upCommand) plan(ctx context.Context, inv *invocation) error {
	var b strings.Builder
	local, err := inv.local()
	if err != nil {
		return err
	}
	e, err := local.Endpoints()
	fresh := !inv.external() && errors.Is(err, statedir.ErrNotRunning)
	if err != nil && !fresh && !inv.external() {
		return &failure{action: "cannot plan", err: err}
	}
	var now cluster.Revision
	var v client.View
	if !fresh {
		c, w, err := inv.watch(ctx, "cannot plan")
		if err != nil {
			return err
		}
		defer w.Close()
		v = w.View()
		if now, _, err = declared(ctx, c); err != nil {
			return &failure{action: "cannot plan", err: err}
		}
	}
	next, err := o.desired(now, fresh)
	if errors.Is(err, errOtherModel) {
		return o.otherModel(inv.cfg.Cluster, now.Topology)
	}
	if err != nil {
		return err
	}
	if !inv.external() {
		if err := o.planProcesses(&b, inv, local, next.Topology, e, fresh); err != nil {
			return err
		}
	}
	var impossible []string
	if !fresh {
		impossible = v.Impossible(next.Topology)
	}
	from, to := now.Topology, next.Topology
	changes := topofile.Diff(topofile.Of(now), topofile.Of(next))
	switch {
	case !fresh && len(changes) == 0:
		fmt.Fprintf(&b, "would change nothing: %s, %s\n", shape(to.Prefill, to.Decode), modelPhrase(to.Model))
	case fresh || from.Prefill+from.Decode == 0:
		fmt.Fprintf(&b, "would declare %s, model %s\n", shape(to.Prefill, to.Decode), modelPhrase(to.Model))
	default:
		fmt.Fprintf(&b, "would change %s to %s, model %s\n", shape(from.Prefill, from.Decode), shape(to.Prefill, to.Decode), modelPhrase(to.Model))
		b.WriteString(changeLines(changes))
		for _, e := range effects(from, to) {
			fmt.Fprintf(&b, "%s\n", e)
		}
	}
	for _, why := range impossible {
		fmt.Fprintf(&b, "impossible: %s\n", why)
	}
	_, err = inv.stdout().Write([]byte(b.String()))
	return err
}

// modelPhrase names a model and where it comes from.
func modelPhrase(m cluster.ModelSpec) string {
	text := m.Name + " (built-in)"
	if m.Path != "" {
		text = m.Name + " from " + m.Path
	}
	if m.Quantize != "" {
		text += " as " + m.Quantize
	}
	return text
}

func (o *upCommand) planProcesses(b *strings.Builder, inv *invocation, local statedir.Cluster, next cluster.Topology, e statedir.Endpoints, fresh bool) error {
	program, err := launch.Find(inv.env.Executable, inv.variables().Get("PATH"))
	if err != nil {
		return noProgram(err)
	}
	roles := nodeRoles(o.agents, next.Prefill, next.Decode)
	name := nodeName
	if inv.beside(e) {
		name = func(i int) string { return agentName(inv.cfg.Namespace, i) }
	}
	if fresh {
		e = statedir.Endpoints{Etcd: []string{"(that of node-1)"}, NATS: "(that of node-1)"}
	}
	for i := 1; i <= o.agents; i++ {
		n, err := local.Node(name(i))
		if err != nil {
			return err
		}
		if _, held := n.Holder(); held {
			continue
		}
		args := o.agentArgs(inv, n.Name, roles[i-1], e)
		if n.Name == nodeName(1) {
			args = o.firstArgs(inv, roles[0])
		}
		fmt.Fprintf(b, "would start %s: %s %s\n", n.Name, program, strings.Join(args, " "))
	}
	return nil
}

func noProgram(err error) error {
	return &failure{
		action: "cannot start the cluster", err: err,
		facts: []string{"dynctl and dynamod are one release: keep them in one directory"},
	}
}

// shellQuote makes a word of a POSIX shell.
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
