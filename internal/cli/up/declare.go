package up

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/inspect"
	"github.com/dynctl/dynctl/internal/topofile"
)

// announce says how what is declared changes, before it does, and refuses what cannot be.
func (u *uplift) announce(ctx context.Context) error {
	now, ever, err := declare.Declared(ctx, u.c)
	if err != nil {
		return &exit.Failure{Action: upAction, Err: err}
	}
	next, err := u.o.desired(now)
	if err != nil {
		return nil //nolint:nilerr // declare says so
	}
	from, to := now.Topology, next.Topology
	changes := topofile.Diff(topofile.Of(now), topofile.Of(next))
	serving := from.Workers() > 0
	if len(changes) > 0 {
		if err := u.possible(ctx, now.Topology, to); err != nil {
			return err
		}
	}
	switch {
	case !ever || !serving || !u.session.Out.Prose() || u.session.Out.Quiet:
	case len(changes) > 0:
		u.pause(fmt.Sprintf("%s changes from %s to %s, generation %d to %d:\n%s%s", u.c.Name, human.Shape(from), human.Shape(to),
			from.Generation, from.Generation+1, declare.ChangeLines(changes), strings.Join(declare.Effects(from, to), "\n")))
	case u.fresh:
		u.pause(fmt.Sprintf("%s resumes the topology declared before it ended, generation %d: %s, model %s", u.c.Name, from.Generation, human.Shape(from), declare.ModelPhrase(from)))
	}
	return nil
}

// pause prints lines that are no progress.
func (u *localNodes) pause(text string) {
	u.show.Close()
	for line := range strings.Lines(text) {
		u.session.Out.Tell("%s", strings.TrimRight(line, "\n"))
	}
	u.show = u.session.Out.Progress(u.o.Progress)
}

// possible refuses a topology that the nodes which are up cannot carry out, or a model of
// this machine that nothing can serve.
func (u *uplift) possible(ctx context.Context, from, to cluster.Topology) error {
	f := &exit.Failure{Action: "cannot declare the topology", Err: errors.New("it cannot be carried out")}
	if from.Workers() > 0 { // else nothing is lost by waiting for nodes
		f.Facts = u.watch.View().Impossible(to)
	}
	if path := to.Model.Path; len(f.Facts) == 0 && (path != from.Model.Path || to.Engine != from.Engine || to.Encode > from.Encode) {
		if _, e := to.Specs(cluster.RoleDecode); to.Model.Builtin() == "" && !u.session.External() && !e.External() {
			f.Facts = unservable(inspect.Look(ctx, path), to)
		}
	}
	switch {
	case len(f.Facts) == 0:
		return nil
	case from.Workers() > 0:
		f.Facts = append(f.Facts, "nothing was changed")
	}
	f.Tries = []string{"dynctl ps --nodes -o wide"}
	if to.Model.Builtin() == "" {
		f.Tries = append(f.Tries, "dynctl model inspect "+human.ShellQuote(to.Model.Path))
	}
	return f
}

// unservable says why a model cannot be served as a topology asks.
func unservable(r inspect.Report, t cluster.Topology) (out []string) {
	for _, p := range r.Problems {
		out = append(out, "model: "+p)
	}
	if len(out) > 0 {
		return out
	}
	for _, role := range cluster.Roles {
		if t.Count(role) == 0 {
			continue
		}
		if role == cluster.RoleEncode && !r.SeesImages {
			out = append(out, "encode workers: the model sees no images: it has no vision tower")
		}
		_, e := t.Specs(role)
		if e.MaxModelLen > r.Context {
			out = append(out, fmt.Sprintf("%s workers: max_model_len: %d is not between 1 and the model's %d", role, e.MaxModelLen, r.Context))
		}
		if n := e.TensorParallel; n > 1 && (r.Shape.Heads%n != 0 || r.Shape.KVHeads%n != 0) {
			out = append(out, fmt.Sprintf("%s workers: tensor_parallel: %d ranks cannot share %d query heads and %d KV heads evenly", role, n, r.Shape.Heads, r.Shape.KVHeads))
		}
	}
	return out
}

// declare writes down what is wanted.
func (u *uplift) declare(ctx context.Context) error {
	if err := u.announce(ctx); err != nil {
		return err
	}
	var seen cluster.Topology
	r, err := u.c.Apply(ctx, func(r *cluster.Revision, _ bool) error {
		seen = r.Topology
		next, err := u.o.desired(*r)
		if err != nil {
			return err
		}
		if err := u.o.validate(next); err != nil {
			return &exit.UsageError{Text: flagText(err)}
		}
		*r = next
		return nil
	})
	u.topo, u.unchanged = r.Topology, r.Topology.Generation == seen.Generation
	u.earlier = r.Topology.Generation > 1 && seen.Workers() > 0
	var usage *exit.UsageError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &usage):
		return err
	}
	return &exit.Failure{Action: "cannot declare the topology", Err: err}
}
