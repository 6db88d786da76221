package judge

import (
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cluster"
)

// ecTransfer is the option of vLLM by which servers pass embeddings on.
const ecTransfer = "--ec-transfer-config"

// encoders judges servers that encode for those of a model with prompts.
func (s *servers) encoders(model string, all, readers []cluster.Worker) {
	if len(all) == 0 {
		return
	}
	for _, e := range all {
		ev := e.ServerStatus
		reads := func(r cluster.Worker) bool {
			v := r.ServerStatus.Version
			return r.ServerStatus.Backend == ev.Backend && (v == "" || ev.Version == "" || v == ev.Version)
		}
		switch {
		case slices.ContainsFunc(readers, reads) || s.waits[model]:
		case len(readers) == 0:
			s.add(Fail, "attach or start a server that answers", "%s encodes for nobody: %s has no server with prompts", e.Name, model)
		default:
			r := readers[0]
			s.add(Fail, "run the same version on both", "%s encodes for nobody: it has %s %s, %s has %s %s", e.Name, ev.Backend, human.OrDash(ev.Version), r.Name, r.ServerStatus.Backend, human.OrDash(r.ServerStatus.Version))
		}
	}
	for _, w := range slices.Concat(all, readers) {
		// A file or a script may have it, too.
		if line := strings.ReplaceAll(s.commands[w.Name], "_", "-"); strings.HasPrefix(line, "vllm serve ") && !strings.Contains(line, ecTransfer) && !strings.Contains(line, "--config") {
			s.add(Warn, "give the servers that encode and those with prompts the same "+ecTransfer+", with their roles: docs/engines.md", "%s passes no embeddings: its command line has no %s", w.Name, ecTransfer)
		}
	}
}
