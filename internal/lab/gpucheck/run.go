package gpucheck

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options selects the checks and sets how they run.
type Options struct {
	// Out is the folder of the results. Cases that have a result there are not run again.
	Out string
	// Phases and Cases choose; none are all. Cases are patterns of names.
	Phases, Cases []string
	// Again runs cases that have a result.
	Again bool
	// Limit is the time for everything, 0 for none beside those of the phases.
	Limit  time.Duration
	Device int
	// Pretended runs over the pretended driver, in small shapes.
	Pretended bool
	// Sources are a folder of kernels that are compiled by NVRTC, with macros, in place of
	// those of this program. NVRTC is its library, empty for the system's.
	Sources, NVRTC string
	// CublasLt is NVIDIA's library that products are compared with, empty for the system's;
	// where there is none they are not.
	CublasLt string
	Macros   []string
	// Models is a folder for checkpoints with random weights, up to 34 GB, which stay there
	// for the next run; empty for one in memory or among temporary files.
	Models string
	// Child is the command line of a process that calls [Child].
	Child []string
	// Build names this program in results.
	Build string
	// Progress gets a line for each case; nil for none.
	Progress io.Writer

	patience, silence time.Duration // of tests
	environment       []string
}

// ErrUnusable is why nothing can be checked on this machine; the text says more.
var ErrUnusable = errors.New("no GPU can be checked")

// ErrFailures says that not everything passed.
var ErrFailures = errors.New("not everything passed")

// Run checks what is chosen, and returns when everything has a result or time is up. The
// error is ErrFailures when a case did not pass. Afterwards [Report] shows the results.
func Run(ctx context.Context, o Options) error {
	chosen, err := choose(o.Phases, o.Cases)
	if err != nil {
		return err
	}
	switch {
	case o.Models != "":
	case o.Pretended: // its models are small, and of no use to anybody
		if o.Models, err = os.MkdirTemp("", "gpu-check-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(o.Models) }() // temporary files
	default:
		o.Models = modelsFolder()
	}
	if o.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Limit)
		defer cancel()
	}
	before, err := Results(o.Out)
	if err != nil {
		return err
	}
	f, err := openFiles(o.Out)
	if err != nil {
		return err
	}
	log, err := appending(filepath.Join(o.Out, LogFile))
	if err != nil {
		return errors.Join(err, f.close())
	}
	c := &check{Options: o, files: f, log: log, results: before}
	err = c.phases(ctx, chosen)
	return errors.Join(err, f.close(), log.Close())
}

// sharedMemory is a folder in memory, on Linux.
const sharedMemory = "/dev/shm"

// modelsFolder returns the folder of checkpoints: in memory where that has room for all.
func modelsFolder() string {
	const name, need = "dynctl-gpu-check", 40 << 30
	if free, err := freeBytes(sharedMemory); err == nil && free > need {
		return filepath.Join(sharedMemory, name)
	}
	return filepath.Join(os.TempDir(), name)
}

// check is a run.
type check struct {
	Options
	files   *files
	log     *os.File
	results []Result // those that were there, and new ones
	about   About
	failed  int
}

func (c *check) phases(ctx context.Context, chosen []Case) error {
	for _, p := range Phases() {
		var todo []string
		for _, k := range chosen {
			if k.Phase == p.Name && (c.Again || !c.has(k.Name)) {
				todo = append(todo, k.Name)
			}
		}
		if len(todo) == 0 {
			continue
		}
		c.say("%s: %d cases, %s: %s", p.Name, len(todo), p.Limit, p.About)
		left, err := c.phase(ctx, p, todo)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			c.say("%s: no time for %d cases, from %s on; run again to go on", p.Name, len(left), left[0])
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", p.Name, context.Cause(ctx))
		}
	}
	if c.failed > 0 {
		return fmt.Errorf("%w: %d cases", ErrFailures, c.failed)
	}
	return nil
}

func (c *check) has(name string) bool {
	return slices.ContainsFunc(c.results, func(r Result) bool { return r.Case == name })
}

// phase runs cases in processes, one after the other: a case that takes one with it is
// noted, and the next process goes on behind it. It returns what it had no time for.
func (c *check) phase(ctx context.Context, p Phase, todo []string) (left []string, err error) {
	within, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	for len(todo) > 0 && within.Err() == nil {
		s := spec{
			Cases: todo, Device: c.Device, Pretended: c.Pretended, Small: c.Pretended, Patience: cmp.Or(c.patience, 10*time.Second),
			Sources: c.Sources, Macros: c.Macros, NVRTC: c.NVRTC, CublasLt: c.CublasLt, Models: c.Models, Build: c.Build, Self: c.Child, Rates: ratesOf(c.results),
		}
		var at string // the case that was begun
		var broken error
		ready, begun, before := false, time.Time{}, len(todo)
		logged := c.logged()
		err := process(within, c.Child, c.environment, s, cmp.Or(c.silence, silence)+s.Patience, c.log, func(m message) error {
			switch {
			case m.Unusable != "":
				broken = fmt.Errorf("%w: %s", ErrUnusable, m.Unusable)
			case m.About != nil:
				c.about, ready = *m.About, true
			case m.Begin != "":
				at, begun = m.Begin, time.Now()
			case m.Result != nil:
				todo = slices.DeleteFunc(todo, func(n string) bool { return n == m.Result.Case })
				at = ""
				return c.add(*m.Result)
			}
			return nil
		})
		switch {
		case broken != nil:
			return todo, broken
		case within.Err() != nil: // the case that was begun is run again another time
			return todo, nil
		case at != "":
			// It took its process with it.
			todo = slices.DeleteFunc(todo, func(n string) bool { return n == at })
			if err == nil {
				err = errors.New("its process exited during the check")
			}
			crash := Result{Case: at, Phase: p.Name, End: Crashed, Why: joined(err.Error(), lastWords(c.log.Name(), logged)) + "; see " + LogFile, About: c.about, Date: begun.UTC(), Seconds: time.Since(begun).Seconds()}
			if err := c.add(crash); err != nil {
				return todo, err
			}
		case err != nil && (!ready || len(todo) == before), errors.Is(err, errLeft):
			return todo, fmt.Errorf("the process for %s: %w; see %s", p.Name, err, LogFile)
		case err == nil && len(todo) > 0:
			return todo, fmt.Errorf("the process for %s does not know %q", p.Name, todo)
		}
	}
	return todo, nil
}

// logged returns the bytes that processes have logged.
func (c *check) logged() int64 {
	info, err := c.log.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// maxWords bounds what is read of a log.
const maxWords = 64 << 10

// lastWords is the line of a log, from some place on, that says why its process ended: of
// Go's own, else the last one.
func lastWords(path string, from int64) (last string) {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.NewSectionReader(f, from, maxWords)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		for _, begin := range []string{"panic: ", "fatal error: ", "SIG"} {
			if strings.HasPrefix(line, begin) {
				return line
			}
		}
		if line != "" {
			last = line
		}
	}
	return last
}

func (c *check) add(r Result) error {
	if r.End != Passed && r.End != Skipped {
		c.failed++
	}
	text := fmt.Sprintf("  %-5s %s", r.End, r.Case)
	if r.Unit != "" {
		text += fmt.Sprintf(": %.4g %s", r.Figure, r.Unit)
	}
	if r.FloorPercent > 0 {
		text += fmt.Sprintf(", %.0f %% of the floor", r.FloorPercent)
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	c.say("%s", text)
	if err := c.files.add(r); err != nil {
		return err
	}
	if i := slices.IndexFunc(c.results, func(o Result) bool { return o.Case == r.Case }); i >= 0 {
		c.results[i] = r
	} else {
		c.results = append(c.results, r)
	}
	return nil
}

func (c *check) say(format string, args ...any) {
	if c.Progress != nil {
		_, _ = fmt.Fprintf(c.Progress, format+"\n", args...) // there is nobody else to tell
	}
}
