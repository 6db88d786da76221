package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/topofile"
)

// spec is the model that the command line names.
func (o *Options) spec() cluster.ModelSpec {
	return cluster.ModelSpec{
		Name: cmp.Or(o.Served, topofile.ModelName(o.Model)), Path: o.Model,
		ToolParser: o.ToolParser, ReasoningParser: o.ReasoningParser, Quantize: o.weights(),
	}
}

// weights is the format that the weights shall have, empty for that in which they are
// stored.
func (o *Options) weights() string {
	if o.Quantize == parse.None {
		return ""
	}
	return o.Quantize
}

// desired returns the revision to declare in place of now. A topology file replaces all of it.
// Without a file, the run-time settings stay. If workers are declared, only the fields given
// on the command line change, also when the cluster was just started after it had ended
// without a down. If none are declared, the command line and its defaults decide.
func (o *Options) desired(now cluster.Revision) (cluster.Revision, error) {
	f := topofile.Of(now)
	t := &f.Topology
	serving := t.Workers() > 0
	switch {
	case o.File != "":
		f = o.read.Clone()
		o.nameModel(&t.Model)
		o.override(t)
	case !serving:
		*t = cluster.Topology{Model: o.spec(), Engine: o.Engine, Prefill: o.Prefill, Decode: o.Decode, Encode: o.Encode, Placement: cluster.Placement(o.Placement)}
	default:
		o.nameModel(&t.Model)
		o.override(t)
	}
	for _, assignment := range o.Set {
		if err := f.Set(assignment, topofile.Source{Dir: o.dir, Home: o.home}); err != nil {
			return now, fmt.Errorf("--set %w", err)
		}
	}
	f.Complete()
	next := f.Onto(now)
	next.Topology.Reason = o.reason
	return next, nil
}

// nameModel takes over the model that was given. What was declared of another one goes with
// that: its parsers and the format of its weights.
func (o *Options) nameModel(m *cluster.ModelSpec) {
	switch {
	case o.given("model"):
		if s := o.spec(); s.Name != m.Name || s.Path != m.Path {
			*m = s
		}
	case o.given("served-model-name"):
		m.Name = o.Served
	}
}

// override changes what was given.
func (o *Options) override(t *cluster.Topology) {
	for flag, change := range map[string]func(){
		"prefill":          func() { t.Prefill = o.Prefill },
		"decode":           func() { t.Decode = o.Decode },
		"encode":           func() { t.Encode = o.Encode },
		"placement":        func() { t.Placement = cluster.Placement(o.Placement) },
		"backend":          func() { t.Engine.Backend = o.Engine.Backend },
		"device":           func() { t.Engine.Device = o.Engine.Device },
		"kv-blocks":        func() { t.Engine.KVBlocks = o.Engine.KVBlocks },
		"block-size":       func() { t.Engine.BlockSize = o.Engine.BlockSize },
		"kv-cache-dtype":   func() { t.Engine.KVDType = o.Engine.KVDType },
		"max-model-len":    func() { t.Engine.MaxModelLen = o.Engine.MaxModelLen },
		"max-num-seqs":     func() { t.Engine.MaxSeqs = o.Engine.MaxSeqs },
		"tensor-parallel":  func() { t.Engine.TensorParallel = o.Engine.TensorParallel },
		"itl-target":       func() { t.Engine.ITLTargetMS = o.Engine.ITLTargetMS },
		"speculative":      func() { t.Engine.Speculative = o.Engine.Speculative },
		"tool-parser":      func() { t.Model.ToolParser = o.ToolParser },
		"reasoning-parser": func() { t.Model.ReasoningParser = o.ReasoningParser },
		"quantize":         func() { t.Model.Quantize = o.weights() },
	} {
		if o.given(flag) {
			change()
		}
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

// processArgs makes the arguments of dynamod processes.
type processArgs struct{ *Options }

func (o *Options) args() processArgs { return processArgs{o} }

// first returns the arguments of the dynamod that hosts the stores.
func (o processArgs) first(role cluster.Role) []string {
	args := o.common(o.Session.Config.Namespace, nodeName(1), role)
	d := o.Session.Config.Discovery
	if d.InFiles() || d.InNATS() {
		args = append(args, "--discovery-backend="+d.Backend)
	}
	if d.Dir != "" {
		args = append(args, "--discovery-dir="+o.Session.Env.Path(d.Dir))
	}
	if d.InNATS() {
		args = append(args, "--discovery-bucket="+d.Bucket)
	}
	if o.Session.Config.NATS.URL != "" {
		args = append(args, "--nats-url="+o.Session.Config.NATS.URL)
	}
	if o.given("port") {
		args = append(args, "--frontend-port="+strconv.Itoa(o.Port))
	}
	return args
}

// agent returns the arguments of any other dynamod.
func (o processArgs) agent(name string, role cluster.Role, e statedir.Endpoints) []string {
	namespace := o.Session.Config.Namespace
	if e.Namespace != "" && !o.Session.Named {
		namespace = e.Namespace
	}
	args := o.common(namespace, name, role)
	if dir, ok := config.StoreDir(e.Etcd); ok {
		args = append(args, "--discovery-backend="+config.BackendFile, "--discovery-dir="+dir)
	} else if bucket, ok := config.StoreBucket(e.Etcd); ok {
		args = append(args, "--discovery-backend="+config.BackendNATS, "--discovery-bucket="+bucket)
	} else {
		args = append(args, "--etcd-endpoints="+strings.Join(e.Etcd, ","))
	}
	if name == agentName(namespace, 1) { // the stores' own frontend serves their namespace
		port := 0
		if o.given("port") {
			port = o.Port
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

func (o processArgs) common(namespace, name string, role cluster.Role) []string {
	args := []string{"--cluster=" + o.Session.Config.Cluster, "--namespace=" + namespace, "--state-dir=" + o.Session.Config.StateDir, "--node-name=" + name}
	if role != "" {
		args = append(args, "--node-roles="+string(role))
	}
	if o.Session.Config.SecretFile != "" {
		args = append(args, "--secret-file="+o.Session.Env.Path(o.Session.Config.SecretFile))
	}
	if o.given("advertise-host") {
		args = append(args, "--node-advertise-host="+o.Host)
	}
	if o.given("request-plane") {
		args = append(args, "--request-plane="+o.Plane)
	}
	return args
}

// plan prints what would happen.
func (o *Options) plan(ctx context.Context) error {
	var b strings.Builder
	local, err := o.Session.Local()
	if err != nil {
		return err
	}
	e, err := local.Endpoints()
	fresh := !o.Session.External() && errors.Is(err, statedir.ErrNotRunning)
	if err != nil && !fresh && !o.Session.External() {
		return &exit.Failure{Action: "cannot plan", Err: err}
	}
	var now cluster.Revision
	var v client.View
	var c *client.Cluster
	if !fresh {
		var w *client.Watch
		c, w, err = o.Session.Watch(ctx, "cannot plan")
		if err != nil {
			return err
		}
		defer w.Close()
		v = w.View()
		if now, _, err = declare.Declared(ctx, c); err != nil {
			return &exit.Failure{Action: "cannot plan", Err: err}
		}
	}
	next, err := o.desired(now)
	if err != nil {
		return err
	}
	if !o.Session.External() {
		if err := o.Session.Startable(); err != nil {
			return &exit.Failure{Action: "cannot plan", Err: err}
		}
		if err := o.planProcesses(&b, local, next.Topology, e, fresh); err != nil {
			return err
		}
	}
	var impossible []string
	if !fresh {
		impossible = v.Impossible(next.Topology)
		if err := c.CheckSight(ctx, now.Topology, next.Topology); errors.Is(err, client.ErrNoSight) {
			impossible = append(impossible, err.Error())
		} else if err != nil {
			return &exit.Failure{Action: "cannot plan", Err: err}
		}
	}
	from, to := now.Topology, next.Topology
	changes := topofile.Diff(topofile.Of(now), topofile.Of(next))
	switch {
	case !fresh && len(changes) == 0:
		fmt.Fprintf(&b, "would change nothing: %s, %s\n", human.Shape(to), declare.ModelPhrase(to))
	case fresh || from.Workers() == 0:
		fmt.Fprintf(&b, "would declare %s, model %s\n", human.Shape(to), declare.ModelPhrase(to))
	default:
		fmt.Fprintf(&b, "would change %s to %s, model %s\n", human.Shape(from), human.Shape(to), declare.ModelPhrase(to))
		b.WriteString(declare.ChangeLines(changes))
		for _, e := range declare.Effects(from, to) {
			fmt.Fprintf(&b, "%s\n", e)
		}
	}
	for _, why := range impossible {
		fmt.Fprintf(&b, "impossible: %s\n", why)
	}
	_, err = o.Session.Out.Streams.Out.Write([]byte(b.String()))
	return err
}

func (o *Options) planProcesses(b *strings.Builder, local statedir.Cluster, next cluster.Topology, e statedir.Endpoints, fresh bool) error {
	program, err := launch.Find(launch.Program, o.Session.Env.Executable, o.Session.Env.Variables().Get("PATH"))
	if err != nil {
		return noProgram(err)
	}
	roles := nodeRoles(o.Agents, next.Prefill, next.Decode)
	name := nodeName
	if o.Session.Beside(e) {
		name = func(i int) string { return agentName(o.Session.Config.Namespace, i) }
	}
	if fresh {
		e = statedir.Endpoints{Etcd: []string{"(that of node-1)"}, NATS: "(that of node-1)"}
		if d := o.Session.Config.Discovery; d.InFiles() || d.InNATS() {
			if d.Dir != "" {
				d.Dir = o.Session.Env.Path(d.Dir)
			}
			addr, err := d.Address(local.StoreDir())
			if err != nil {
				return err
			}
			e.Etcd = []string{addr}
		}
	}
	for i := 1; i <= o.Agents; i++ {
		n, err := local.Node(name(i))
		if err != nil {
			return err
		}
		if _, held := n.Holder(); held {
			continue
		}
		args := o.args().agent(n.Name, roles[i-1], e)
		if n.Name == nodeName(1) {
			args = o.args().first(roles[0])
		}
		fmt.Fprintf(b, "would start %s: %s %s\n", n.Name, program, strings.Join(args, " "))
	}
	return nil
}

func noProgram(err error) error {
	return &exit.Failure{
		Action: "cannot start the cluster", Err: err,
		Facts: []string{"dynctl and dynamod are one release: keep them in one directory"},
	}
}
