package logs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cluster"
)

// maxLocalLog limits the bytes read from a log file, as agents limit them.
const maxLocalLog = 1 << 20

// localLogs finds log files on this machine: those of the named workers, or of the
// agents. Nodes that do not run have directories too.
func localLogs(s *session.Session, workers []string) ([]logSource, error) {
	c, err := s.Local()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(c.Path)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return human.CompareNodes(a.Name(), b.Name()) })
	var out []logSource
	add := func(label, path string) bool {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return false
		}
		out = append(out, logSource{label: label, file: path})
		return true
	}
	for _, e := range entries {
		n, err := c.Node(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		if len(workers) == 0 && !add(n.Name, n.AgentLog()) {
			add(n.Name, n.Output())
		}
		for _, w := range workers {
			if _, err := cluster.WorkerNumber(w); err != nil {
				continue // not a name of a file either
			}
			add(w, n.WorkerLog(w))
		}
	}
	return out, nil
}

// printFiles prints files of this machine one after the other.
func (o *Options) printFiles(files []logSource) error {
	if o.Follow {
		o.Session.Out.Note("nothing runs, so that nothing is followed")
	}
	out := &lineWriter{w: o.Session.Out.Streams.Data()}
	for _, f := range files {
		p := out.source(f.label, len(files) > 1)
		if err := o.printFile(f, p); err != nil {
			return &exit.Failure{Action: "cannot read logs of " + f.label, Err: err}
		}
		p.flush()
	}
	return nil
}

func (o *Options) printFile(s logSource, p *lineSource) error {
	text, err := lastBytes(s.file, maxLocalLog)
	if err != nil {
		return err
	}
	if o.tailed {
		text = LastLines(text, o.Tail)
	}
	return p.write(text)
}

// lastBytes returns the end of a file, beginning with a whole line.
func lastBytes(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	buf := make([]byte, min(info.Size(), n))
	read, err := f.ReadAt(buf, info.Size()-int64(len(buf)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	buf = buf[:read]
	if int64(read) < info.Size() {
		if i := slices.Index(buf, '\n'); i >= 0 {
			buf = buf[i+1:]
		}
	}
	return buf, nil
}

// LastLines returns the last n lines of text.
func LastLines(text []byte, n int) []byte {
	if n == 0 {
		return nil
	}
	at := len(text)
	if at > 0 && text[at-1] == '\n' {
		at--
	}
	for range n {
		for at--; at >= 0 && text[at] != '\n'; at-- {
		}
		if at < 0 {
			return text
		}
	}
	return text[at+1:]
}
