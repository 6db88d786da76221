package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/inspect"
)

// filesFinding judges the files of the declared model: those on this machine, if they are
// here, and whether all workers have the same.
func filesFinding(ctx context.Context, v client.View, cards []cluster.ModelCard, err error) finding {
	if v.Topology == nil || v.Topology.Model.Name == "" {
		return skipped("no model is declared")
	}
	spec := v.Topology.Model
	digests, byFormat := map[string]bool{}, map[string]map[string]bool{}
	differ := ""
	for _, c := range cards {
		if c.DisplayName != spec.Name {
			continue
		}
		digests[c.Digest] = true
		if byFormat[c.Weights] == nil { // other weights have other digests, from the same files
			byFormat[c.Weights] = map[string]bool{}
		}
		if byFormat[c.Weights][c.Digest] = true; len(byFormat[c.Weights]) > 1 {
			differ = c.Weights
		}
	}
	known := slices.Sorted(maps.Keys(digests))
	switch {
	case err != nil:
		return bad("look at etcd", "%v", err)
	case differ != "":
		return bad("put the same files on all nodes, then dynctl drain and resume the workers that differ",
			"workers serve different files under the name %s, as %s: %s", spec.Name, differ, strings.Join(known, ", ")).with("digests", known)
	case spec.Path == "":
		return good("%s is built into dynamod", spec.Name).with("digests", known)
	}
	if _, err := os.Stat(spec.Path); err != nil {
		return skipped("%s is not on this machine; the nodes read it", spec.Path).with("digests", known)
	}
	r := inspect.Look(ctx, spec.Path)
	text := fmt.Sprintf("%s: %s, %s", spec.Path, r.Format, plural(len(r.Files), "file"))
	fix := "dynctl model inspect " + shellQuote(spec.Path)
	switch {
	case len(r.Problems) > 0:
		return bad(fix, "%s: %s", spec.Path, firstOf(r.Problems)).with("problems", r.Problems)
	case stored(spec, cards) && len(known) == 1 && r.Digest != known[0]:
		return poor("dynctl drain and resume of the workers loads what is there now", "%s was changed since the workers loaded it", spec.Path).with("digests", known).with("digest", r.Digest)
	case len(r.Warnings) > 0:
		return poor(fix, "%s; %s", text, firstOf(r.Warnings)).with("warnings", r.Warnings)
	}
	return good("%s", text).with("digest", r.Digest)
}

// stored reports whether all workers compute with the weights as they are in the files, so
// that their digests are those of the files.
func stored(spec cluster.ModelSpec, cards []cluster.ModelCard) bool {
	return spec.Quantize == "" && !slices.ContainsFunc(cards, func(c cluster.ModelCard) bool {
		return c.DisplayName == spec.Name && c.Weights == cluster.BackendMock
	})
}
