package frontend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// fileSet is the processor made from a model's small files. Workers whose cards list the
// same files share one.
type fileSet struct {
	proc     *chat.Processor // nil until loaded
	pictures *pictures       // nil for a model of text
	loading  bool
	failures int
	retryAt  time.Time
}

// loadResult is the outcome of loading a set.
type loadResult struct {
	key, model string
	proc       *chat.Processor
	pictures   *pictures
	err        error
}

// filesKey returns a key that is equal for cards with equal digests and files.
func filesKey(card cluster.ModelCard) string {
	lines := make([]string, 0, len(card.Files))
	for _, f := range card.Files {
		lines = append(lines, fmt.Sprintf("%q%q", f.Name, f.SHA256))
	}
	slices.Sort(lines)
	return card.Digest + strings.Join(lines, "")
}

// ensure returns the set of a key. It starts loading the set if that is due and a worker
// offers the files. wait is the time until the next attempt, or 0 if there is nothing to
// wait for.
func (r *registry) ensure(ctx context.Context, key string, cards []cardAt, now time.Time) (set *fileSet, wait time.Duration) {
	set = r.sets[key]
	if set == nil {
		set = &fileSet{}
		r.sets[key] = set
	}
	if set.proc != nil || set.loading {
		return set, 0
	}
	if wait := set.retryAt.Sub(now); wait > 0 {
		return set, wait
	}
	instances := r.offering(key, cards)
	if len(instances) == 0 {
		return set, 0 // the watch of the files wakes run
	}
	set.loading = true
	card := cards[0].ModelCard
	r.loaders.Go(func() {
		proc, pictures, err := r.load(ctx, card, instances)
		select {
		case r.loaded <- loadResult{key, card.DisplayName, proc, pictures, err}:
		case <-ctx.Done():
		}
	})
	return set, 0
}

// offering lists the endpoints that serve the files of a key: those under the same
// leases as the cards, the oldest first.
func (r *registry) offering(key string, cards []cardAt) []cluster.Instance {
	byID := map[cluster.InstanceID]cluster.Instance{}
	for _, inst := range r.files.Instances() {
		byID[inst.InstanceID] = inst
	}
	var out []cluster.Instance
	for _, c := range cards {
		if inst, ok := byID[c.id]; ok && filesKey(c.ModelCard) == key {
			out = append(out, inst)
		}
	}
	return out
}

// take stores the outcome of loading a set.
func (r *registry) take(res loadResult, now time.Time) {
	set := r.sets[res.key]
	if set == nil {
		return
	}
	set.loading, set.proc, set.pictures = false, res.proc, res.pictures
	if res.err != nil {
		wait := min(r.limits.retry<<min(set.failures, 10), r.limits.retryMost)
		set.failures++
		set.retryAt = now.Add(wait)
		r.log.Error("model cannot be served", "model", res.model, "retry_in", wait, "error", res.err)
	}
}

// load fetches a model's files from the first instance whose files match the card, and
// makes a processor of them.
func (r *registry) load(ctx context.Context, card cluster.ModelCard, instances []cluster.Instance) (*chat.Processor, *pictures, error) {
	var errs []error
	for _, inst := range instances {
		files, err := r.fetch(ctx, card, inst)
		if err == nil {
			pictures, err := newPictures(card, files)
			if err != nil {
				return nil, nil, err
			}
			proc, err := chat.Load(files)
			return proc, pictures, err
		}
		errs = append(errs, fmt.Errorf("fetch files from %s: %w", inst.Worker, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, nil, errors.Join(errs...)
}

// errFiles is returned when a worker's files differ from those of its card.
var errFiles = errors.New("files do not match the model card")

// fetch gets all files of a card from one instance and checks them. A file may
// come in several pieces.
func (r *registry) fetch(ctx context.Context, card cluster.ModelCard, inst cluster.Instance) (chat.Files, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limits.fetch)
	defer cancel()
	var req protocol.ModelFilesRequest
	files := chat.Files{}
	for _, f := range card.Files {
		req.Names = append(req.Names, f.Name)
		files[f.Name] = nil
	}
	stream, err := r.files.Call(ctx, inst, "model-files", nil, req)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	total := 0
	for {
		var piece protocol.ModelFile
		if err := stream.Recv(ctx, &piece); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if _, asked := files[piece.Name]; !asked {
			return nil, fmt.Errorf("%w: %q was not asked for", errFiles, piece.Name)
		}
		if total += len(piece.Content); total > r.limits.files {
			return nil, fmt.Errorf("%w: they are larger than %d bytes", errFiles, r.limits.files)
		}
		files[piece.Name] = append(files[piece.Name], piece.Content...)
	}
	for _, f := range card.Files {
		sum := sha256.Sum256(files[f.Name])
		if got := hex.EncodeToString(sum[:]); got != f.SHA256 {
			return nil, fmt.Errorf("%w: %s has digest %s, the card says %s", errFiles, f.Name, got, f.SHA256)
		}
	}
	return files, nil
}
