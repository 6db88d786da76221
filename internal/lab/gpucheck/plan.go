package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Phase is a part of a check. Its cases run one after the other, within Limit.
type Phase struct {
	Name  string
	About string
	Limit time.Duration
	cases func() []Case
}

// Case is one thing that is checked or measured.
type Case struct {
	Name  string // begins with that of its phase
	Phase string
	run   func(ctx context.Context, r *rig) (finding, error)
}

// finding is the result of a case that passed.
type finding struct {
	figure  float64
	unit    string
	samples []float64
	// least is the shortest possible time in seconds; 0 without a floor.
	least, took float64
	also        map[string]float64
	notes       []string
	golden      *Golden
}

// Phases are all there are, in the order in which they run: what all else needs comes first.
func Phases() []Phase {
	return []Phase{
		{"smoke", "the driver, what it makes of the kernels, and each of them once between guards", 2 * time.Minute, smokeCases},
		{"compare", "every kernel against its function in Go, small and ragged shapes, then those of models", 3 * time.Minute, compareCases},
		{"answers", "prompts and answers of the built-in model through the engine, whose tokens are those of the CPU", time.Minute, answerCases},
		{"floor", "what memory and launches can do at best", time.Minute, floorCases},
		{"measure", "every kernel in shapes of Llama-3.1-8B, Qwen3-8B and Qwen3-0.6B, as a share of the floor", 4 * time.Minute, measureCases},
		{"engine", "whole models with random weights, through the engine", 5 * time.Minute, engineCases},
		{"golden", "checksums and sampled values to be kept, and that they repeat", time.Minute, goldenCases},
		{"ipc", "memory that two processes share", 30 * time.Second, ipcCases},
		{"tune", "every tile for products on compute capability 9.0, of which the fastest become a table", 2 * time.Minute, tuneCases},
	}
}

// Cases returns the cases of all phases.
func Cases() (all []Case) {
	for _, p := range Phases() {
		for _, c := range p.cases() {
			c.Phase = p.Name
			c.Name = p.Name + "/" + c.Name
			all = append(all, c)
		}
	}
	return all
}

// ErrChoice is for a choice of phases or cases that means nothing.
var ErrChoice = errors.New("no such choice")

// choose picks cases by phases and by patterns; none are all. A pattern must be one of some
// case, of whatever phase. It
// is a name, or the beginning of one up to a slash, with * and ? for what is between two
// slashes.
func choose(phases, patterns []string) ([]Case, error) {
	var names []string
	for _, p := range Phases() {
		names = append(names, p.Name)
	}
	for _, p := range phases {
		if !slices.Contains(names, p) {
			return nil, fmt.Errorf("%w: phase %q, there are %s", ErrChoice, p, strings.Join(names, ", "))
		}
	}
	found := make([]bool, len(patterns))
	out := slices.DeleteFunc(Cases(), func(c Case) bool {
		wanted := len(patterns) == 0
		for i, p := range patterns {
			if matches(p, c.Name) {
				wanted, found[i] = true, true
			}
		}
		return !wanted || len(phases) > 0 && !slices.Contains(phases, c.Phase)
	})
	for i, p := range patterns {
		if !found[i] {
			return nil, fmt.Errorf("%w: no case matches %q; --list names them", ErrChoice, p)
		}
	}
	return out, nil
}

func matches(pattern, name string) bool {
	parts, deep := strings.Split(name, "/"), strings.Count(strings.TrimSuffix(pattern, "/"), "/")+1
	if deep > len(parts) {
		return false
	}
	ok, err := path.Match(strings.TrimSuffix(pattern, "/"), strings.Join(parts[:deep], "/"))
	return ok && err == nil
}

// Names returns the names of the chosen cases, as [Options] chooses them.
func Names(phases, patterns []string) ([]string, error) {
	cases, err := choose(phases, patterns)
	var names []string
	for _, c := range cases {
		names = append(names, c.Name)
	}
	return names, err
}
