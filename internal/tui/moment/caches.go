package moment

import (
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
)

// Cache finds what is known of the KV cache of a worker's instance; nil if nothing is.
func (m *Moment) Cache(w *cluster.Worker) *cluster.KVCache {
	if i, ok := m.Known.cacheAt[w.InstanceID]; ok && w.InstanceID != 0 {
		return &m.Snap.Caches.Workers[i]
	}
	return nil
}

// FalseShare is the share of recently predicted blocks that the worker did not find; nil if
// none were predicted, or if nobody tells.
func (m *Moment) FalseShare(w *cluster.Worker) *float64 { return CacheFalseShare(m.Cache(w)) }

// CacheFalseShare is the same of a cache; nil is one that is not known.
func CacheFalseShare(c *cluster.KVCache) *float64 {
	if c == nil || c.Index == nil || c.Index.Recent == nil {
		return nil
	}
	if share, known := c.Index.Recent.FalseShare(); known {
		return &share
	}
	return nil
}

// OutOfDate is for how long KV events of a cache are known to be missing; 0 if none are.
func (m *Moment) OutOfDate(c *cluster.KVCache) time.Duration {
	if c.Index == nil || c.Index.OutOfDateSince.IsZero() {
		return 0
	}
	return max(m.At().Sub(c.Index.OutOfDateSince), 1)
}

// LateCaches counts the caches of which KV events are known to be missing.
func (m *Moment) LateCaches() (n int) {
	if m.Snap.Caches == nil {
		return 0
	}
	for i := range m.Snap.Caches.Workers {
		if m.OutOfDate(&m.Snap.Caches.Workers[i]) > 0 {
			n++
		}
	}
	return n
}

// CacheEpoch is the number of a cache's contents, as dynctl get index prints it. An index
// that is not fed by events knows none.
func CacheEpoch(c *cluster.KVCache) string {
	if c.Index == nil || c.Approximate {
		return cells.Unknown
	}
	return strconv.FormatUint(c.Index.Epoch, 16)
}
