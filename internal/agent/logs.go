package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/host"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/undo"
)

// maxLogBytes is the size at which a log file is moved to NAME.1.
const maxLogBytes = 16 << 20

const (
	// logReserve is the space that logs leave free on a disk, in bytes, because state
	// matters more.
	logReserve = 32 << 20
	// roomEvery is the interval of checks of the free space.
	roomEvery = time.Second
)

// logFile is a log that takes at most twice its limit on disk. Writing never fails: lines
// that cannot be written are dropped and counted, and the log notes the gap when it
// continues.
type logFile struct {
	path    string
	limit   int64 // bytes
	free    func(path string) (bytes uint64, err error)
	dropped func() // counts a line

	mu     sync.Mutex
	f      *os.File // nil when closed
	size   int64
	asked  time.Time // time of the last check of the disk
	full   bool      // result of that check
	missed int       // lines dropped since the last one written
	torn   bool      // the last line may have no end
}

// openLog opens a log. It calls dropped for each line that it has to drop.
func openLog(path string, dropped func()) (*logFile, error) {
	l := &logFile{path: path, limit: maxLogBytes, dropped: dropped, free: func(path string) (uint64, error) {
		free, _, err := host.Disk(filepath.Dir(path))
		return free, err
	}}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write appends one record, or drops it. A record that is longer than the limit gets a
// file of its own.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return 0, os.ErrClosed
	}
	if now := time.Now(); now.Sub(l.asked) >= roomEvery {
		free, err := l.free(l.path)
		l.asked, l.full = now, err == nil && free < logReserve
	}
	if l.full || !l.writeLocked(b) {
		l.missed++
		l.dropped()
	}
	return len(b), nil
}

// writeLocked reports whether the record is in the file.
func (l *logFile) writeLocked(b []byte) bool {
	if l.size > 0 && l.size+int64(len(b)) > l.limit {
		l.rotateLocked()
	}
	if l.missed > 0 || l.torn {
		gap := fmt.Appendf(nil, "time=%s level=WARN msg=\"lines are missing here: the disk was full\" lines=%d\n", time.Now().Format(time.RFC3339Nano), l.missed)
		if l.torn {
			gap = append([]byte("\n"), gap...)
		}
		if !l.appendLocked(gap) {
			return false
		}
		l.missed = 0
	}
	return l.appendLocked(b)
}

func (l *logFile) appendLocked(b []byte) bool {
	n, err := l.f.Write(b)
	l.size += int64(n)
	if n > 0 {
		l.torn = err != nil
	}
	return err == nil
}

// rotateLocked renames the file and begins a new one. If that fails it keeps the old
// file: a log that is too long is better than none.
func (l *logFile) rotateLocked() {
	old := l.f
	err := os.Rename(l.path, l.path+".1")
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = l.open()
	}
	if err != nil {
		l.size = 0 // try again after as much once more
		return
	}
	_ = old.Close()
}

// Close closes the file; later writes fail.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	return f.Close()
}

// workerLog returns a logger that writes to the worker's own file and to the node's log.
// If the file cannot be opened, only the node's log gets the records.
func (a *Agent) workerLog(name string) (*logFile, *slog.Logger) {
	f, err := openLog(a.dir.WorkerLog(name), a.alarms.dropped)
	if err != nil {
		a.log.Warn("no log file for worker", "worker", name, "error", err)
		return &logFile{}, a.log
	}
	own := slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})
	return f, slog.New(slog.NewMultiHandler(own, a.log.Handler()))
}

// serveLogs offers the log files of this node to dynctl.
func (a *Agent) serveLogs(ctx context.Context, back *undo.Stack) error {
	if _, err := a.drt.Serve(ctx, cluster.ComponentAgent, cluster.EndpointLogs, a.sendLog); err != nil {
		return fmt.Errorf("serve logs: %w", err)
	}
	// Otherwise a follower of a log would keep the node from leaving the cluster.
	back.Push("end the followers of logs", func(context.Context) error { close(a.noLogs); return nil })
	return nil
}

// followEvery is the interval at which a follower looks for new lines.
const followEvery = 200 * time.Millisecond

// sendLog streams a log file: its last lines and, if asked, lines added later.
func (a *Agent) sendLog(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.LogRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	path := a.dir.AgentLog()
	if req.Worker != "" {
		if _, err := cluster.WorkerNumber(req.Worker); err != nil {
			return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: err.Error()}
		}
		path = a.dir.WorkerLog(req.Worker)
	}
	f, err := os.Open(path)
	if err != nil {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "no log of " + strings.TrimSuffix(filepath.Base(path), ".log") + " on this node"}
	}
	defer func() { f.Close() }()
	tail, offset, err := tailLines(f, req.Tail)
	if err != nil {
		return err
	}
	if err := send(protocol.LogChunk{Data: tail}); err != nil || !req.Follow {
		return err
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		over := replaced(f, path) // checked before reading on, so that the rest of the old file is read first
		if offset, err = sendFrom(f, offset, send); err != nil {
			return err
		}
		if over {
			if next, err := os.Open(path); err == nil {
				f.Close()
				f, offset = next, 0
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.noLogs: // all lines have been sent
			_, err := sendFrom(f, offset, send)
			return err
		case <-tick.C:
		}
	}
}

// sendFrom sends what a file holds from offset on, and returns where that ends.
func sendFrom(f *os.File, offset int64, send func(any) error) (int64, error) {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.ReadAt(buf, offset)
		if n > 0 {
			offset += int64(n)
			if err := send(protocol.LogChunk{Data: buf[:n]}); err != nil {
				return offset, err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return offset, nil
		case err != nil:
			return offset, fmt.Errorf("read log: %w", err)
		}
	}
}

// replaced reports whether path now names another file.
func replaced(f *os.File, path string) bool {
	old, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && !os.SameFile(old, now)
}

// maxTail bounds the existing bytes that a reader gets.
const maxTail = 1 << 20

// tailLines returns the last n lines of a file (all for n <= 0), at most maxTail
// bytes, and the offset where they end.
func tailLines(f *os.File, n int) ([]byte, int64, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("read log: %w", err)
	}
	size := info.Size()
	buf := make([]byte, min(size, maxTail))
	if _, err := f.ReadAt(buf, size-int64(len(buf))); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("read log: %w", err)
	}
	if int64(len(buf)) < size { // begin with a whole line, if there is one
		if i := bytes.IndexByte(buf, '\n'); i >= 0 && i+1 < len(buf) {
			buf = buf[i+1:]
		}
	}
	if n > 0 {
		at := len(bytes.TrimSuffix(buf, []byte("\n")))
		for range n {
			if at = bytes.LastIndexByte(buf[:at], '\n'); at < 0 {
				break
			}
		}
		buf = buf[at+1:]
	}
	return buf, size, nil
}
