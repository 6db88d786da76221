package nixl

import (
	"fmt"
	"slices"
)

// PartialSpec says what a partial metadata blob holds.
type PartialSpec struct {
	Labels  []string  // all regions of these labels
	Regions []*Region // and these
	// Connection includes what peers need to connect. Without it the blob is of use
	// only to those that have loaded one with it.
	Connection bool
}

// PartialMetadata returns a blob that tells peers of some regions, or how to connect
// and of no region. What a peer has loaded of this incarnation before stays known to it.
// Like that of Metadata, a blob with connection data is a secret of the cluster.
//
// Errors: ErrInvalidParam for an empty spec, ErrNotFound for a label or region that is
// not registered, ErrNotSupported for a file.
func (a *Agent) PartialMetadata(spec PartialSpec) ([]byte, error) {
	if len(spec.Labels) == 0 && len(spec.Regions) == 0 && !spec.Connection {
		return nil, fmt.Errorf("partial metadata: nothing is asked for: %w", ErrInvalidParam)
	}
	m := metadata{Identity: a.self, partial: true, connected: spec.Connection}
	if spec.Connection {
		m.conns = a.conns
	}
	taken := map[Desc]bool{}
	found := map[string]bool{}
	for _, r := range a.publicRegions() {
		byLabel := slices.Contains(spec.Labels, r.Label)
		if byLabel || slices.ContainsFunc(spec.Regions, func(x *Region) bool { return x != nil && x.base == r.Base }) {
			m.regions = append(m.regions, r)
			taken[r.Base] = true
			found[r.Label] = found[r.Label] || byLabel
		}
	}
	for _, l := range spec.Labels {
		if !found[l] {
			return nil, fmt.Errorf("partial metadata: no region %q that peers may know: %w", l, ErrNotFound)
		}
	}
	for i, r := range spec.Regions {
		switch {
		case r != nil && r.typ == FILE:
			return nil, fmt.Errorf("partial metadata: region %d, %q, is a file of this agent: %w", i, r.label, ErrNotSupported)
		case r == nil || r.owner != &a.regions || !taken[r.base]:
			return nil, fmt.Errorf("partial metadata: region %d is not registered: %w", i, ErrNotFound)
		}
	}
	return m.encode(), nil
}

// merge completes a partial blob by what is known of the same incarnation.
func (a *Agent) merge(m metadata) (metadata, error) {
	if !m.partial {
		return m, nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	old := a.peers[m.Name]
	switch {
	case old == nil || old.state != PeerLoaded:
		if m.connected {
			return m, nil
		}
		return m, fmt.Errorf("a blob with its connection data must come first: %w", ErrNotFound)
	case old.Incarnation != m.Incarnation || old.HostID != m.HostID:
		if m.connected { // it was restarted; what was known is worth nothing
			return m, nil
		}
		return m, fmt.Errorf("regions of incarnation %s, loaded is %s: %w", m.Incarnation, old.Incarnation, ErrMismatch)
	}
	if !m.connected {
		m.conns = old.conns
	}
	rs, err := mergeRegions(old.regions, m.regions)
	m.regions = rs
	return m, err
}

// mergeRegions adds regions to those that are known. A region never changes: one that
// comes again must be the same.
func mergeRegions(known, more []RemoteRegion) ([]RemoteRegion, error) {
	all := slices.Concat(known, more)
	slices.SortStableFunc(all, func(x, y RemoteRegion) int { return compareDesc(x.Base, y.Base) })
	out := all[:0]
	for _, r := range all {
		if n := len(out) - 1; n >= 0 && out[n].Base.DevID == r.Base.DevID && r.Base.Addr < out[n].Base.End() {
			if out[n] != r {
				return nil, fmt.Errorf("region %q (%s) is known as %q (%s): %w", r.Label, r.Base, out[n].Label, out[n].Base, ErrNotAllowed)
			}
			continue
		}
		out = append(out, r)
	}
	if len(out) > maxRemoteRegions {
		return nil, fmt.Errorf("%d regions, at most %d: %w", len(out), maxRemoteRegions, ErrBackend)
	}
	return slices.Clip(out), nil
}
