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

// Options configures a run.
type Options struct {
	// Sections names what to measure; empty means all sections that are not apart. See
	// [Names].
	Sections []string
	// Quick reduces all sizes: a run takes a minute instead of several.
	Quick bool
	// Model is a checkpoint to measure in the engine section in place of the
	// synthetic one, and in the accuracy section in place of the built-in one.
	Model string
	// Text is a file with text for the accuracy section; empty for a built-in one.
	Text string
	// StateDir holds the synthetic model and temporary directories, so that the servers
	// write to the disk that they would use in production.
	StateDir string
	// CPU selects what the section cpu measures.
	CPU CPUOptions
	// Scale selects what the section scale measures.
	Scale ScaleOptions
	// GPUs are the devices for the workers of the section disagg, in the form of the
	// setting gpu.devices; empty for processors.
	GPUs string
	// Plots is the folder of the plots, relative to the report's document. If empty, the
	// document has no plots.
	Plots string
	// Child is the command line of a program that runs [Child] with its last argument.
	// Without it, measurements that need a separate process are left out.
	Child []string
	// Command and Version are printed in the report.
	Command string
	Version string
	// Progress receives lines of text about the progress; nil drops them.
	Progress io.Writer
	// Log receives warnings of the parts under test; nil drops them.
	Log *slog.Logger

	cuda driving // of tests
}

// section measures one group.
type section struct {
	name  string
	about string // for the command line
	// apart reports that the section makes its own report and runs only when named.
	apart bool
	run   func(ctx context.Context, s *session) (Section, error)
}

// sections returns all sections in the order in which they run.
func sections() []section {
	return []section{
		{"engine", "prefill and decode on the CPU backend, against the memory's speed", false, measureEngine},
		{"path", "HTTP to tokens and back, against the bare engine", false, measurePath},
		{"nixl", "transfers between agents, against memcpy and plain sockets", false, measureNIXL},
		{"plane", "request plane, embedded etcd and NATS, against plain sockets and fsync", false, measurePlane},
		{"disagg", "remote prefill against local prefill, and streams beside long prompts", false, measureDisagg},
		{"images", "encoders of images, and requests with images beside streams of text", false, measureImages},
		{"cpu", "the CPU backend in real shapes, against the processor's limits; not in all", true, measureCPU},
		{"router", "what router and index cost a frontend under load; not in all", true, measureRouter},
		{SectionScale, "what the control plane costs for fleets of several sizes; not in all", true, measureScale},
		{"accuracy", "logits of types and instructions against float32; not in all", true, measureAccuracy},
	}
}

// SectionScale is the section of a command of its own, dynlab scale.
const SectionScale = "scale"

// Names returns the names of all sections with a short description of each, but for
// [SectionScale].
func Names() (names []string, about map[string]string) {
	about = map[string]string{}
	for _, s := range sections() {
		if s.name == SectionScale {
			continue
		}
		names = append(names, s.name)
		about[s.name] = s.about
	}
	return names, about
}

// ErrSection is returned for the name of a section that does not exist.
var ErrSection = errors.New("no such benchmark")

// Run measures and returns the report. If ctx ends first, it returns the cause and no
// report.
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
		// The next section must not pay for the memory of this one.
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

// session is the state that the sections of one run share.
type session struct {
	opts  Options
	scale scale
	log   *slog.Logger
	home  string // for all files of this package
	tmp   string // for this run
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

// removeLeftovers deletes the directories of runs that were killed.
func (s *session) removeLeftovers() {
	entries, err := os.ReadDir(s.home)
	if err != nil {
		return // making this run's directory returns the same error
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
