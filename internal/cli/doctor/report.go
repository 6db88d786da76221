package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/version"
)

const (
	// logEnd bounds what a report holds of one log, in bytes, and logLines in lines.
	logEnd   = 256 << 10
	logLines = 2000
	// listenFor is how long a report listens to events, of which it takes mostEvents.
	listenFor  = 3 * time.Second
	mostEvents = 1000
	// reportMost bounds a report before compression; logs beyond it are left out.
	reportMost = 64 << 20
)

// report is an archive for a bug report. Everything passes the scrubber.
type report struct {
	scrub scrubber
	tar   *tar.Writer
	now   time.Time
	left  int64 // bytes until reportMost
	notes []string
}

// writeReport writes an archive with the diagnosis, versions, settings, what the cluster
// has in its store and the ends of logs, and returns its path. An existing file is not
// replaced.
func (o *Options) writeReport(ctx context.Context, d Diagnosis) (name string, err error) {
	now := o.Session.Out.Now()
	if name = o.Report; name == reportByTime {
		name = "dynctl-report-" + now.UTC().Format("20060102-150405") + ".tar.gz"
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return name, &exit.Failure{Action: "cannot write the report", Err: err}
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(name) // half a report
		}
	}()
	zip := gzip.NewWriter(f)
	r := &report{tar: tar.NewWriter(zip), now: now, left: reportMost}
	r.scrub.environ(o.Session.Out.Environ)
	for _, s := range []string{string(o.Session.Config.Etcd.Password), string(o.Session.Config.NATS.Password), string(o.Session.Config.NATS.Token)} {
		r.scrub.know(s)
	}
	if err := r.fill(ctx, o, d); err != nil {
		return name, &exit.Failure{Action: "cannot write the report", Err: err}
	}
	return name, errors.Join(r.tar.Close(), zip.Close())
}

func (r *report) fill(ctx context.Context, o *Options, d Diagnosis) error {
	local, err := o.Session.Local()
	if err != nil {
		return err
	}
	if b, err := os.ReadFile(local.SecretPath()); err == nil {
		r.scrub.know(string(b))
	}
	about := map[string]string{"dynctl": version.String(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "at": r.now.UTC().Format(time.RFC3339)}
	errs := []error{r.json("version.json", about), r.json("doctor.json", d), r.json("settings.json", o.Session.Config)}
	c, v, err := o.Session.Look(ctx, "cannot read the cluster")
	if err != nil {
		r.notes = append(r.notes, err.Error())
	} else {
		history, late := c.History(ctx)
		if late != nil {
			r.notes = append(r.notes, late.Error())
		}
		errs = append(errs, r.json("cluster.json", v), r.json("workers.json", c.Workers(ctx, v)), r.json("history.json", history))
		errs = append(errs, r.json("events.json", r.events(ctx, c)), r.logs(ctx, c, v, o.Timeout))
	}
	errs = append(errs, r.localLogs(local, err != nil))
	return errors.Join(append(errs, r.file("notes.txt", []byte(strings.Join(r.notes, "\n")+"\n")))...)
}

// events listens for a while: events are not kept.
func (r *report) events(ctx context.Context, c *client.Cluster) []client.Event {
	list := []client.Event{}
	s, err := c.Events(ctx)
	if err != nil {
		r.notes = append(r.notes, "events: "+err.Error())
		return list
	}
	defer func() { _ = s.Close() }() // nothing was written
	for over := time.After(listenFor); len(list) < mostEvents; {
		select {
		case e := <-s.Events():
			list = append(list, e)
		case <-over:
			return list
		case <-ctx.Done():
			return list
		}
	}
	return list
}

// logs asks the agents of all nodes for the ends of their logs and their workers'.
func (r *report) logs(ctx context.Context, c *client.Cluster, v client.View, timeout time.Duration) error {
	var errs []error
	for _, n := range v.Nodes {
		workers := []string{""}
		for name, a := range v.Assignments {
			if a.Node == n.ID {
				workers = append(workers, name)
			}
		}
		for _, w := range workers {
			var b bytes.Buffer
			asking, cancel := context.WithTimeout(ctx, timeout)
			err := c.Logs(asking, v, n.ID, client.LogOptions{Worker: w, Tail: logLines}, func(p []byte) error { _, err := b.Write(p); return err })
			cancel()
			if w == "" {
				w = "dynamod"
			}
			if err != nil {
				r.notes = append(r.notes, fmt.Sprintf("log of %s on %s: %v", w, n.Name, err))
			}
			errs = append(errs, r.end(path.Join("logs", n.Name, w+".log"), b.Bytes()))
		}
	}
	return errors.Join(errs...)
}

// localLogs adds what dynamod processes of this machine wrote, also those that ended, and
// their logs where agents could not be asked for them.
func (r *report) localLogs(local statedir.Cluster, all bool) error {
	var errs []error
	entries, err := os.ReadDir(local.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.notes = append(r.notes, err.Error())
	}
	for _, e := range entries {
		n, err := local.Node(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		files := []string{n.Output()}
		if all {
			logs, _ := filepath.Glob(filepath.Join(n.LogDir(), "*.log")) // fails for bad patterns only
			files = append(files, logs...)
		}
		for _, file := range files {
			if b, err := readEnd(file); err == nil {
				errs = append(errs, r.end(path.Join("local", n.Name, filepath.Base(file)), b))
			}
		}
	}
	return errors.Join(errs...)
}

func readEnd(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read
	if info, err := f.Stat(); err == nil && info.Size() > logEnd {
		if _, err := f.Seek(-logEnd, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, logEnd))
}

// end adds the last logEnd bytes of a log, from the beginning of a line on: half a line
// could hold half a secret.
func (r *report) end(name string, b []byte) error {
	if over := len(b) - logEnd; over >= 0 {
		b = b[over:]
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	return r.file(name, b)
}

func (r *report) json(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.file(name, append(b, '\n'))
}

func (r *report) file(name string, b []byte) error {
	b = r.scrub.clean(b)
	if r.left -= int64(len(b)); r.left < 0 {
		r.notes = append(r.notes, name+" is left out: the report is too large")
		return nil
	}
	if err := r.tar.WriteHeader(&tar.Header{Name: path.Join("dynctl-report", name), Mode: 0o600, Size: int64(len(b)), ModTime: r.now, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := r.tar.Write(b)
	return err
}

// reportByTime is the value of --report without one: a name made of the time.
const reportByTime = "by time"
