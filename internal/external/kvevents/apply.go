package kvevents

import (
	"hash/maphash"
	"log/slog"
	"strings"

	"github.com/dynctl/dynctl/internal/blockhash"
)

var payloads = maphash.MakeSeed()

// identify returns a number by which a message is known again.
func identify(payload []byte) uint64 { return maphash.Bytes(payloads, payload) }

// take applies the message with a sequence number.
func (f *Follower) take(s *source, seq uint64, payload []byte) {
	b, err := decode(payload)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.figures.Batches++
	if err != nil {
		f.figures.Undecodable++
		f.complain("KV events of a server make no sense; its blocks are forgotten", slog.Int("rank", s.number), slog.Uint64("sequence", seq), slog.Any("error", err))
		f.forget(s)
	}
	s.known, s.next, s.last = true, seq+1, identify(payload)
	for i := range b.events {
		f.event(s, &b.events[i])
	}
	f.blocks.out.flush(reasonRemoved)
}

// event applies one event. The caller holds mu.
func (f *Follower) event(s *source, e *event) {
	f.figures.Events++
	switch e.tag {
	case tagStored:
		seed, ok := f.seedOf(e.adapter)
		if !ok || !s.counts(e) {
			f.figures.Ignored += uint64(len(e.hashes))
			return
		}
		f.figures.Ignored += uint64(len(e.hashes) - e.plain)
		f.blocks.store(s.rank, seed, e.parent, e.hashes[:e.plain], e.tokens, e.blockSize)
	case tagRemoved:
		if s.counts(e) {
			f.blocks.remove(s.rank, e.hashes)
		}
	case tagCleared:
		f.blocks.clear(s.rank)
	default:
		f.unknown(e.tag)
	}
}

// seedOf returns the seed of the hashes of blocks that an adapter computed, "" for none. It is
// false for those that no prompt finds: of the base, where an adapter is served in its place.
func (f *Follower) seedOf(adapter string) (seed uint64, ok bool) {
	if adapter == f.serves {
		return f.cfg.HashSeed, true
	}
	return blockhash.AdapterSeed(f.cfg.HashSeed, adapter), adapter != ""
}

// unknown counts an event of an unknown type, and logs each type once.
func (f *Follower) unknown(tag string) {
	f.figures.Unknown++
	if len(tag) > 64 {
		tag = tag[:64]
	}
	if !f.tags[tag] && len(f.tags) < maxTags {
		f.tags[tag] = true
		f.cfg.Log.Warn("a server sends KV events of an unknown type, which are ignored", "type", tag)
	}
}

// counts reports whether the blocks of an event are found by prompts: they are in the memory
// of the device, here, and of layers that attend to all tokens. Removals do not tell the kind
// of their layers, so it is remembered by group.
func (s *source) counts(e *event) bool {
	if e.medium != "" && !strings.EqualFold(e.medium, "GPU") || e.remote {
		return false
	}
	group := max(e.group, 0)
	switch e.spec {
	case "":
		if counts, ok := s.groups[group]; ok {
			return counts
		}
		return group == 0
	case "full_attention", "mla_attention":
		return s.remember(group, true)
	}
	return s.remember(group, false)
}

func (s *source) remember(group int, counts bool) bool {
	if _, ok := s.groups[group]; ok || len(s.groups) < maxGroups {
		s.groups[group] = counts
		return counts
	}
	return false // it could not be removed again
}
