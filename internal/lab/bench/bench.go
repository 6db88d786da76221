package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Options of a run.
type Options struct {
	// Sections names what to measure; empty means everything that is not apart. See
	// [Names].
	Sections []string
	// Quick makes everything smaller: a minute instead of several.
	Quick bool
	// Model is a checkpoint to measure in the engine section in place of the
	// synthetic one, and in the accuracy section in place of the built-in one.
	Model string
	// Text is a file with text for the accuracy section; empty for a built-in one.
	Text string
	// StateDir is where the synthetic model is kept and where temporary directories
	// are made, so that the servers write to the disk they would use in earnest.
	StateDir string
	// CPU are the choices of the section cpu.
	CPU CPUOptions
	// GPUs are those that the workers of the section disagg run on, as the setting gpu.devices
	// names them; empty for processors.
	GPUs string
	// Plots is the folder of the plots, as the report's document refers to it; empty
	// leaves them out of the document.
	Plots string
	// Child is the command line of a program that runs [Child] with its last argument;
	// without it, what needs a process of its own is left out.
	Child []string
	// Command and Version are printed in the report.
	Command string
	Version string
	// Progress receives lines of text about what is going on; nil drops them.
	Progress io.Writer
	// Log receives warnings of the parts under test; nil drops them.
	Log *slog.Logger

	cuda driving // of tests
}

// section measures one group.
type section struct {
	name  string
	about string // for the command line
	// apart says that the section makes a report of its own and is no part of
	// everything.
	apart bool
	run   func(ctx context.Context, s *session) (Section, error)
}

// sections lists all of them in the order in which they run.
func sections() []section {
	return []section{
		{"engine", "prefill and decode on the CPU backend, against the memory's speed", false, measureEngine},
		{"path", "HTTP to tokens and back, against the bare engine", false, measurePath},
		{"nixl", "transfers between agents, against memcpy and plain sockets", false, measureNIXL},
		{"plane", "request plane, embedded etcd and NATS, against plain sockets and fsync", false, measurePlane},
		{"disagg", "remote prefill against local prefill, and streams beside long prompts", false, measureDisagg},
		{"cpu", "the CPU backend in real shapes, against the processor's limits; not in all", true, measureCPU},
		{"accuracy", "logits of types and instructions against float32; not in all", true, measureAccuracy},
	}
}

// Names returns the names of all sections with a short description of each.
func Names() (names []string, about map[string]string) {
	about = map[string]string{}
	for _, s := range sections() {
		names = append(names, s.name)
		about[s.name] = s.about
	}
	return names, about
}

// ErrSection is returned for the name of a section that does not exist.
var ErrSection = errors.New("no such benchmark")

// Run measures and returns the report. It returns the cause of ctx when that ends
// first; what was measured until then is lost.
func Run(ctx context.Context, o Options) (*Report, error) {
	sc := fullScale()
	if o.Quick {
		sc = quickScale()
	}
	return run(ctx, o, sc)
}

func run(ctx context.Context, o Options, sc scale) (_ *Report, err error) {
	chosen, err := choose(o.Sections)
	if err != nil {
		return nil, err
	}
	s, err := newSession(o, sc)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := &Report{
		Host: thisHost(),
		Run:  RunInfo{Command: o.Command, Version: o.Version, Started: time.Now(), Quick: o.Quick, LoadBefore: loadAverage(), Plots: o.Plots},
	}
	for _, sec := range chosen {
		s.say("%s: %s", sec.name, sec.about)
		out, err := sec.run(ctx, s)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("bench %s: %w", sec.name, err)
		}
		out.Name = sec.name
		r.Sections = append(r.Sections, out)
		// The next section shall not pay for the memory of this one.
		debug.FreeOSMemory()
	}
	r.Run.Took, r.Run.LoadAfter = time.Since(r.Run.Started), loadAverage()
	s.say("done after %s", r.Run.Took.Round(time.Second))
	return r, nil
}

func choose(names []string) ([]section, error) {
	all := sections()
	if len(names) == 0 {
		return slices.DeleteFunc(all, func(s section) bool { return s.apart }), nil
	}
	var out []section
	for _, n := range names {
		i := slices.IndexFunc(all, func(s section) bool { return s.name == n })
		if i < 0 {
			return nil, fmt.Errorf("%w: %q", ErrSection, n)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// session is what the sections of one run share.
type session struct {
	opts  Options
	scale scale
	log   *slog.Logger
	home  string // of everything this package keeps
	tmp   string // of this run
}

// homeName cannot be the name of a cluster, whose directories are its neighbors.
const homeName = ".bench"

func newSession(o Options, sc scale) (*session, error) {
	s := &session{opts: o, scale: sc, log: o.Log, home: filepath.Join(o.StateDir, homeName)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(s.home, 0o700); err != nil {
		return nil, fmt.Errorf("make benchmark directory: %w", err)
	}
	s.removeLeftovers()
	var err error
	if s.tmp, err = os.MkdirTemp(s.home, tmpPrefix); err != nil {
		return nil, fmt.Errorf("make benchmark directory: %w", err)
	}
	return s, nil
}

const tmpPrefix = "tmp-"

// removeLeftovers deletes what runs left behind that were killed.
func (s *session) removeLeftovers() {
	entries, err := os.ReadDir(s.home)
	if err != nil {
		return // making this run's directory meets the same error
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), tmpPrefix) && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.RemoveAll(filepath.Join(s.home, e.Name())) // tried again next time
		}
	}
}

func (s *session) close() error {
	if err := os.RemoveAll(s.tmp); err != nil {
		return fmt.Errorf("remove temporary files: %w", err)
	}
	return nil
}

// say writes a line of progress.
func (s *session) say(format string, args ...any) {
	if s.opts.Progress != nil {
		_, _ = fmt.Fprintf(s.opts.Progress, "bench: "+format+"\n", args...) // progress may be lost
	}
}
