package nixl

import (
	"context"
	"fmt"
	"slices"
)

// Storage moves bytes between host memory and files of this machine, for one agent:
// what NIXL calls a local backend. Implementations live in sub-packages. A Storage owns
// its goroutines until Close, and calls the methods of Job with no lock held.
type Storage interface {
	// Name is the backend's name in logs and metrics, such as "posix".
	Name() string
	// Submit starts a job and never blocks. Job.Local pairs up with Job.Files. It ends
	// every job with Job.Finish.
	Submit(j *Job)
	// Query looks at files by name; one answer per name. A name is a path, or what a
	// file is opened with.
	Query(ctx context.Context, names []string) ([]MemInfo, error)
	// Close ends everything and waits for it. Jobs end with ErrCanceled.
	Close() error
}

// FilePiece is where in a file a piece of a job's memory belongs; it is as long as the
// piece.
type FilePiece struct {
	File FileMemory
	Off  int64 // bytes from the start of the file
}

// MemInfo is what QueryMem found out.
type MemInfo struct {
	Name   string
	Exists bool
	Size   int64 // bytes
}

// QueryMem asks the agent's storage backend about memory by name, such as whether a
// file exists and how long it is. Only [FILE] can be asked for.
func (a *Agent) QueryMem(ctx context.Context, typ MemType, names ...string) ([]MemInfo, error) {
	switch {
	case typ != FILE:
		return nil, fmt.Errorf("query %s memory: %w", typ, ErrNotSupported)
	case a.storage == nil:
		return nil, fmt.Errorf("query %s memory: agent %q has no storage backend: %w", typ, a.self.Name, ErrNotSupported)
	case len(names) > a.limits.Descs:
		return nil, fmt.Errorf("query %d files, at most %d: %w", len(names), a.limits.Descs, ErrInvalidParam)
	}
	out, err := a.storage.Query(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("query %s memory: %w", typ, err)
	}
	return out, nil
}

// newStorageTransfer prepares a transfer of the agent with itself, between host memory
// and files. The lists are merged and the transfer's to keep.
func (a *Agent) newStorageTransfer(op Op, local, files []Desc, opts TransferOpts) (*Transfer, error) {
	fail := func(st Status, format string, args ...any) (*Transfer, error) {
		return nil, fmt.Errorf("prepare %s with %q itself: %s: %w", op, a.self.Name, fmt.Sprintf(format, args...), st)
	}
	total, ok := TotalBytes(local)
	switch {
	case op > Write:
		return fail(ErrInvalidParam, "unknown operation")
	case a.storage == nil:
		return fail(ErrNotSupported, "no storage backend")
	case opts.HasNotify || len(opts.Notify) > 0:
		return fail(ErrNotSupported, "storage does not notify")
	case !ok:
		return fail(ErrInvalidParam, "empty or overlong descriptor")
	case len(local) > a.limits.Descs:
		return fail(ErrInvalidParam, "%d descriptors, at most %d", len(local), a.limits.Descs)
	}
	for i := range local {
		l, _, err := a.regions.find(local[i])
		if err != nil {
			return fail(ErrNotFound, "local descriptor %d (%s) is not registered", i, local[i])
		}
		f, _, err := a.regions.find(files[i])
		switch {
		case err != nil:
			return fail(ErrNotFound, "file descriptor %d (%s) is not registered", i, files[i])
		case l.typ != DRAM || f.typ != FILE:
			return fail(ErrNotSupported, "pair %d is %s and %s memory, storage %s moves %s and %s", i, l.typ, f.typ, a.storage.Name(), DRAM, FILE)
		case op == Write && !f.file.Writable():
			return fail(ErrNotAllowed, "file of pair %d was opened for reading", i)
		}
	}
	return &Transfer{
		agent: a, op: op, peer: a.itself, local: local, remote: files, bytes: total, opts: opts, storage: true,
		path:   a.paths.path(a.self.Name, a.storage.Name()),
		status: ErrNotPosted, done: make(chan struct{}),
	}, nil
}

// admitStorage keeps memory and files registered and finds the latter. The caller
// holds Agent.mu.
func (a *Agent) admitStorage(j *Job) (err error) {
	t := j.transfer
	both := slices.Concat(t.local, t.remote)
	segs, unuse, err := a.regions.use(both)
	if err != nil {
		return err
	}
	j.Local, j.unuse = segs[:len(t.local)], unuse
	j.Files = make([]FilePiece, len(t.remote))
	for i, d := range t.remote {
		r, off, err := a.regions.find(d)
		if err != nil {
			return err // never: it is in use
		}
		j.Files[i] = FilePiece{r.file, off}
	}
	return nil
}
