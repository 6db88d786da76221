package gpucheck

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Outcome is the result of a case: one of the constants below.
type Outcome string

// Outcomes.
const (
	Passed  Outcome = "pass"
	Failed  Outcome = "fail"
	Skipped Outcome = "skip"
	Hung    Outcome = "hang"  // work of the device did not end in time
	Lost    Outcome = "lost"  // the device could not be used any more
	Crashed Outcome = "crash" // the process ended, or wrote nothing in time
)

// Result is a line of the results.
type Result struct {
	Case  string  `json:"case"`
	Phase string  `json:"phase"`
	End   Outcome `json:"result"`
	Why   string  `json:"why,omitempty"` // it did not pass

	// Figure is the measured value; without a unit there is none. Samples are the microseconds
	// of one operation, of which the median counts.
	Figure  float64   `json:"figure,omitempty"`
	Unit    string    `json:"unit,omitempty"`
	Samples []float64 `json:"samples_us,omitempty"`
	// FloorPercent is the least time that the bytes and operations take at Rates, as a share
	// of the time measured.
	FloorPercent float64            `json:"percent_of_floor,omitempty"`
	Rates        *Rates             `json:"rates,omitempty"`
	Also         map[string]float64 `json:"also,omitempty"` // further figures, named with their unit
	Notes        []string           `json:"notes,omitempty"`

	Kernels []string `json:"kernels,omitempty"` // that were launched
	PTX     []string `json:"ptx,omitempty"`     // their hashes

	About
	State
	Date    time.Time `json:"date"`
	Seconds float64   `json:"seconds"` // that the case took, on the host

	Golden *Golden `json:"golden,omitempty"` // kept in a file of its own
}

// About is on what something was found.
type About struct {
	Device     string `json:"device"`
	Capability string `json:"compute_capability"`
	Driver     string `json:"driver,omitempty"` // release of NVIDIA's
	CUDA       string `json:"cuda"`
	Build      string `json:"build"`
	Sources    string `json:"sources,omitempty"`  // who compiled the kernels, other than this program
	CublasLt   string `json:"cublaslt,omitempty"` // release, where it is compared with
	// Pretended results are of the pretended driver: their times mean nothing.
	Pretended bool `json:"pretended,omitempty"`
}

// State is the GPU's state right after a case, as far as NVML reports it.
type State struct {
	ClockMHz    *int     `json:"sm_clock_mhz,omitempty"`
	PowerWatts  *float64 `json:"power_watts,omitempty"`
	Temperature *int     `json:"temperature_c,omitempty"`
	Throttled   []string `json:"throttled,omitempty"`
}

// Rates holds the peak rates of a device.
type Rates struct {
	BytesPerSecond float64 `json:"bytes_per_second"`
	FLOPPerSecond  float64 `json:"flop_per_second,omitempty"`
	From           string  `json:"from"` // who says so
}

// Files of the folder of results.
const (
	ResultsFile = "results.jsonl"
	GoldensFile = "goldens.jsonl"
	SummaryFile = "summary.md"
	LogFile     = "child.log"
)

// files holds the files of results.
type files struct{ results, goldens *os.File }

func openFiles(dir string) (*files, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f := &files{}
	var err error
	if f.results, err = appending(filepath.Join(dir, ResultsFile)); err != nil {
		return nil, err
	}
	if f.goldens, err = appending(filepath.Join(dir, GoldensFile)); err != nil {
		return nil, errors.Join(err, f.results.Close())
	}
	return f, nil
}

// appending opens a file of lines; one that was cut off is ended.
func appending(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return f, err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if last[0] != '\n' {
		_, err = f.WriteString("\n")
	}
	return f, err
}

// add writes a result at once: what is written survives whatever comes after.
func (f *files) add(r Result) error {
	if r.Golden != nil {
		if err := line(f.goldens, r.Golden); err != nil {
			return err
		}
		r.Golden = nil
	}
	return line(f.results, r)
}

func line(f *os.File, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return err
}

func (f *files) close() error { return errors.Join(f.results.Close(), f.goldens.Close()) }

// Results returns the results in a folder, the latest of each case, in the order in which cases were
// first written. It skips truncated lines: their writer was killed.
func Results(dir string) ([]Result, error) {
	return latest(filepath.Join(dir, ResultsFile), func(r *Result) string { return r.Case })
}

// latest reads lines of JSON, of which the last one of each name counts; a line without a
// name is none.
func latest[T any](path string, name func(*T) string) ([]T, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []T
	at := map[string]int{}
	for lines := bufio.NewReader(f); ; {
		text, err := lines.ReadBytes('\n')
		var v T
		if json.Unmarshal(text, &v) == nil && name(&v) != "" {
			if i, known := at[name(&v)]; known {
				all[i] = v
			} else {
				at[name(&v)] = len(all)
				all = append(all, v)
			}
		}
		if err != nil {
			return all, nil // the end, or what cannot be read
		}
	}
}

// seconds prints a duration as figures have it.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
