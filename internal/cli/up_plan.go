package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/statedir"
)

// errOtherModel is returned when a running cluster serves another model.
var errOtherModel = errors.New("it serves another model")

// spec is the model that the command line names.
func (o *upCommand) spec() cluster.ModelSpec {
	m := cluster.ModelSpec{Name: o.served, Path: o.model, ToolParser: o.tool, ReasoningParser: o.reasoning, Quantize: o.weights()}
	switch {
	case m.Name != "":
	case m.Path != "":
		if m.Name = filepath.Base(m.Path); isGGUF(m.Name) {
			m.Name = m.Name[:len(m.Name)-len(filepath.Ext(m.Name))]
		}
	default:
		m.Name = cluster.BuiltinModelName
	}
	return m
}

// weights is the format that the weights shall have, empty for that in which they are
// stored.
func (o *upCommand) weights() string {
	if o.quantize == parse.None {
		return ""
	}
	return o.quantize
}

// desired is the topology to declare where now is the present one. In a cluster
// that serves, only what was given changes; in one that serves nothing, or was just
// started, the command line and its defaults decide.
func (o *upCommand) desired(now cluster.Topology, fresh bool) (cluster.Topology, error) {
	next := now
	if fresh || now.Prefill+now.Decode == 0 {
		next.Model, next.Engine, next.Prefill, next.Decode = o.spec(), o.engine, o.prefill, o.decode
		return next, nil
	}
	want := now.Model
	switch {
	case o.given("model"):
		want.Name, want.Path = o.spec().Name, o.spec().Path
	case o.given("served-name"):
		want.Name = o.served
	}
	if want != now.Model {
		return next, errOtherModel
	}
	set := func(flag string, field *int, value int) {
		if o.given(flag) {
			*field = value
		}
	}
	set("prefill", &next.Prefill, o.prefill)
	set("decode", &next.Decode, o.decode)
	set("kv-blocks", &next.Engine.KVBlocks, o.engine.KVBlocks)
	set("block-size", &next.Engine.BlockSize, o.engine.BlockSize)
	set("max-model-len", &next.Engine.MaxModelLen, o.engine.MaxModelLen)
	set("max-seqs", &next.Engine.MaxSeqs, o.engine.MaxSeqs)
	if o.given("itl-target") {
		next.Engine.ITLTargetMS = o.engine.ITLTargetMS
	}
	if o.given("speculative") {
		next.Engine.Speculative = o.engine.Speculative
	}
	if o.given("tool-parser") {
		next.Model.ToolParser = o.tool
	}
	if o.given("quantize") {
		next.Model.Quantize = o.weights()
	}
	if o.given("reasoning-parser") {
		next.Model.ReasoningParser = o.reasoning
	}
	if o.given("device") {
		next.Engine.Device = o.engine.Device
	}
	return next, nil
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
	if o.given("served-name") {
		flags += " --served-name " + shellQuote(o.served)
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
	if e.Namespace != "" {
		namespace = e.Namespace
	}
	args := append(o.commonArgs(inv, namespace, name, role), "--etcd-endpoints="+strings.Join(e.Etcd, ","), "--frontend-enabled=false")
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
	var now cluster.Topology
	if !fresh {
		c, err := inv.connect(ctx, "cannot plan")
		if err != nil {
			return err
		}
		t, err := c.Topology(ctx)
		if err != nil {
			return &failure{action: "cannot plan", err: err}
		}
		if t != nil {
			now = *t
		}
	}
	next, err := o.desired(now, fresh)
	if errors.Is(err, errOtherModel) {
		return o.otherModel(inv.cfg.Cluster, now)
	}
	if !inv.external() {
		if err := o.planProcesses(&b, inv, local, next, e, fresh); err != nil {
			return err
		}
	}
	model := next.Model.Name + " (built-in)"
	if next.Model.Path != "" {
		model = next.Model.Name + " from " + next.Model.Path
	}
	if next.Model.Quantize != "" {
		model += " as " + next.Model.Quantize
	}
	if !fresh && next == now {
		fmt.Fprintf(&b, "would change nothing: %s, %s\n", shape(next.Prefill, next.Decode), model)
	} else if fresh || now.Prefill+now.Decode == 0 {
		fmt.Fprintf(&b, "would declare %s, model %s\n", shape(next.Prefill, next.Decode), model)
	} else {
		fmt.Fprintf(&b, "would change %s to %s, model %s\n", shape(now.Prefill, now.Decode), shape(next.Prefill, next.Decode), model)
	}
	_, err = inv.stdout().Write([]byte(b.String()))
	return err
}

func (o *upCommand) planProcesses(b *strings.Builder, inv *invocation, local statedir.Cluster, next cluster.Topology, e statedir.Endpoints, fresh bool) error {
	program, err := launch.Find(inv.env.Executable, inv.variables().Get("PATH"))
	if err != nil {
		return noProgram(err)
	}
	roles := nodeRoles(o.agents, next.Prefill, next.Decode)
	if fresh {
		e = statedir.Endpoints{Etcd: []string{"(that of node-1)"}, NATS: "(that of node-1)"}
	}
	for i := 1; i <= o.agents; i++ {
		n, err := local.Node(nodeName(i))
		if err != nil {
			return err
		}
		if _, held := n.Holder(); held {
			continue
		}
		args := o.agentArgs(inv, n.Name, roles[i-1], e)
		if i == 1 {
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
