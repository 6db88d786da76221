package judge

import (
	"maps"
	"slices"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// adapters judges the LoRA adapters of servers: names that others have, and servers that lack what
// their partners have.
func (s *servers) adapters(v client.View) {
	const rename = "load them under other names (--lora-modules NAME=PATH)"
	named := map[string]bool{}
	if v.Topology != nil {
		for _, name := range v.Topology.ModelNames() {
			named[name] = true
		}
	}
	for _, w := range v.Workers() {
		named[w.Model] = true
	}
	owners := map[string][]string{} // models by adapter
	for _, model := range slices.Sorted(maps.Keys(s.models)) {
		prefill, decode, prefills := map[string]bool{}, map[string]bool{}, false
		for _, w := range s.models[model] {
			have := decode
			switch w.Role {
			case cluster.RolePrefill:
				have, prefills = prefill, true
			case cluster.RoleEncode:
				continue // an adapter's server sees for itself
			}
			for _, name := range w.ServerStatus.Adapters {
				have[name] = true
			}
			if n := w.ServerStatus.OddAdapters; n > 0 {
				s.add(Warn, "unload some, or give them short names without control characters", "%s: %d adapters are not served: at most %d of a server are, with names of %d bytes", w.Name, n, cluster.MaxAdapters, cluster.MaxAdapterName)
			}
		}
		var taken, unserved, unsplit []string
		for _, name := range slices.Sorted(maps.Keys(decode)) {
			switch {
			case named[name]:
				taken = append(taken, name)
				continue
			case prefills && !prefill[name]:
				unsplit = append(unsplit, name)
			}
			owners[name] = append(owners[name], model)
		}
		for _, name := range slices.Sorted(maps.Keys(prefill)) {
			if !decode[name] {
				unserved = append(unserved, name)
			}
		}
		if len(taken) > 0 {
			s.add(Warn, rename, "adapters of %s are not served, because models have their names: %s", model, human.Names(taken))
		}
		if len(unserved) > 0 {
			s.add(Warn, "load them there, too", "adapters of %s are not served, because no decode server has them: %s", model, human.Names(unserved))
		}
		if len(unsplit) > 0 {
			s.add(Warn, "load them there, too", "no prefill server of %s has the adapters %s: decode servers compute their prompts", model, human.Names(unsplit))
		}
	}
	shared := map[string][]string{} // adapters by the models that have them
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if models := owners[name]; len(models) > 1 {
			key := human.Names(models)
			shared[key] = append(shared[key], name)
		}
	}
	for _, models := range slices.Sorted(maps.Keys(shared)) {
		s.add(Warn, rename, "%s have adapters with the same names, of which one each is served: %s", models, human.Names(shared[models]))
	}
}
