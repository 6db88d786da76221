package frontend

import (
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
)

// maxAdapters bounds the adapters of all models that are served: each is a model in lists and
// metrics.
const maxAdapters = 1024

// adapter is the LoRA adapter that answers for the model; empty for a model of its own.
func (m *servedModel) adapter() string {
	if m.base == "" {
		return ""
	}
	return m.name
}

// declared is the name by which a topology has the model: that of an adapter's base.
func (m *servedModel) declared() string {
	if m.base != "" {
		return m.base
	}
	return m.name
}

// base is the name by which a topology has what is served under a name: its workers have the load.
func (r *registry) base(name string) string {
	if m := r.find(name); m != nil {
		return m.declared()
	}
	return name
}

// addAdapters adds the adapters of models to them, each as a model whose workers are those that have
// it. agreed are the cards of decode workers, prefills those of prefill workers, by model. An
// adapter hides no model that is served or declared. Of two adapters with one name, the one that is
// served already is kept, or else that of the first model by name.
func (r *registry) addAdapters(models, old map[string]*servedModel, agreed, prefills map[string][]cardAt) {
	const taken = "an adapter of another model has its name"
	hidden, owner, having := map[string]bool{}, map[string]string{}, map[string]map[string][]cardAt{}
	for _, base := range slices.Sorted(maps.Keys(agreed)) {
		having[base] = byAdapter(agreed[base])
		for name := range having[base] {
			other, contested := owner[name]
			switch was := old[name]; {
			case models[name] != nil || r.expected(name):
				r.hide(hidden, name, base, "a model has its name")
			case !contested:
				owner[name] = base
			case was != nil && was.base == base:
				r.hide(hidden, name, other, taken)
				owner[name] = base
			default:
				r.hide(hidden, name, base, taken)
			}
		}
	}
	for i, name := range slices.Sorted(maps.Keys(owner)) {
		base := owner[name]
		if i >= maxAdapters {
			r.hide(hidden, name, base, "there are too many")
			continue
		}
		models[name] = r.adapted(name, models[base], having[base][name], byAdapter(prefills[base])[name], old[name])
	}
	r.hidden = hidden
}

// hide logs, once, that an adapter is left out.
func (r *registry) hide(hidden map[string]bool, name, base, why string) {
	key := base + "\x00" + name
	if hidden[key] = true; !r.hidden[key] {
		r.log.Error("an adapter is not served", "adapter", name, "model", base, "why", why)
	}
}

// byAdapter sorts cards by the adapters of their workers. What is no name of an adapter is left
// out.
func byAdapter(cards []cardAt) map[string][]cardAt {
	out := map[string][]cardAt{}
	for _, c := range cards {
		for _, name := range c.Adapters[:min(len(c.Adapters), cluster.MaxAdapters)] {
			if cluster.ValidAdapter(name) {
				out[name] = append(out[name], c)
			}
		}
	}
	return out
}

// adapted returns an adapter of a model as a model whose workers have these cards.
func (r *registry) adapted(name string, m *servedModel, cards, prefills []cardAt, old *servedModel) *servedModel {
	a := *m
	a.name, a.base, a.created = name, m.name, time.Now()
	a.workers, a.needsPrefill = map[cluster.InstanceID]cluster.RuntimeConfig{}, true
	for _, c := range cards {
		a.workers[c.id] = c.Runtime
		a.needsPrefill = a.needsPrefill && c.Runtime.NeedsPrefill
	}
	a.prefills, a.served = suitable(prefills, m.card, a.workers)
	a.card.DisplayName, a.card.Adapters = name, nil
	a.card.Digest, a.card.HashSeed = cluster.AdapterDigest(m.card.Digest, name), blockhash.AdapterSeed(m.card.HashSeed, name)
	if old != nil && old.base == a.base && old.card.Digest == a.card.Digest {
		a.created = old.created
	} else {
		r.log.Info("an adapter is served", "adapter", name, "model", m.name)
	}
	if old == nil || old.limits != a.limits {
		r.metrics.SetModel(name, a.limits)
	}
	return &a
}
