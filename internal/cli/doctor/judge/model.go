package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/inspect"
)

// ModelFiles are the files of the declared model, as workers have them and as they are on
// this machine.
type ModelFiles struct {
	Model cluster.ModelSpec // without a name: none is declared
	// OfServer says that only servers of other engines have it.
	OfServer bool
	Cards    []cluster.ModelCard
	Err      error           // why the cards are not known
	Here     *inspect.Report // nil: not on this machine
}

// Judge looks at the files on this machine, if they are here, and whether all workers have
// the same.
func (m ModelFiles) Judge() Finding {
	spec := m.Model
	if spec.Name == "" {
		return Skipped("no model is declared")
	}
	known, differ := digests(spec.Name, m.Cards)
	switch {
	case m.Err != nil:
		return Bad("look at the store", "%v", m.Err)
	case differ != "":
		return Bad("put the same files on all nodes, then dynctl drain and resume the workers that differ",
			"workers serve different files under the name %s, as %s: %s", spec.Name, differ, strings.Join(known, ", ")).With("digests", known)
	case m.OfServer:
		return Skipped("only its servers have the files of %s", spec.Name)
	case spec.Builtin() != "":
		return good("%s is built into dynamod", spec.Name).With("digests", known)
	case m.Here == nil:
		return Skipped("%s is not on this machine; the nodes read it", spec.Path).With("digests", known)
	}
	r := *m.Here
	text := fmt.Sprintf("%s: %s, %s", spec.Path, r.Format, human.Plural(len(r.Files), "file"))
	fix := "dynctl model inspect " + human.ShellQuote(spec.Path)
	switch {
	case len(r.Problems) > 0:
		return Bad(fix, "%s: %s", spec.Path, firstOf(r.Problems)).With("problems", r.Problems)
	case stored(spec, m.Cards) && len(known) == 1 && r.Digest != known[0]:
		return poor("dynctl drain and resume of the workers loads what is there now", "%s was changed since the workers loaded it", spec.Path).With("digests", known).With("digest", r.Digest)
	case len(r.Warnings) > 0:
		return poor(fix, "%s; %s", text, firstOf(r.Warnings)).With("warnings", r.Warnings)
	}
	return good("%s", text).With("digest", r.Digest)
}

// digests returns the digests under which workers serve a model. differ is a format of weights of
// which there are several: other weights have other digests, from the same files.
func digests(name string, cards []cluster.ModelCard) (known []string, differ string) {
	all, byFormat := map[string]bool{}, map[string]map[string]bool{}
	for _, c := range cards {
		if c.DisplayName != name {
			continue
		}
		all[c.Digest] = true
		if byFormat[c.Weights] == nil {
			byFormat[c.Weights] = map[string]bool{}
		}
		if byFormat[c.Weights][c.Digest] = true; len(byFormat[c.Weights]) > 1 {
			differ = c.Weights
		}
	}
	return slices.Sorted(maps.Keys(all)), differ
}

// stored reports whether all workers compute with the weights as they are in the files, so
// that their digests are those of the files.
func stored(spec cluster.ModelSpec, cards []cluster.ModelCard) bool {
	return spec.Quantize == "" && !slices.ContainsFunc(cards, func(c cluster.ModelCard) bool {
		return c.DisplayName == spec.Name && c.Weights == cluster.BackendMock
	})
}
