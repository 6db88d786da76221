package labflags

import (
	"time"

	"github.com/spf13/pflag"
)

// Simulate are the flags of dynlab simulate. Whether the answer is JSON is for each program to ask in its own way.
type Simulate struct {
	File, Compare           string
	Profile, PrefillProfile string
	Tables                  string
	Prefill, Decode         int
	SharedDevices           int

	Trace    string
	Speed    float64
	Repeat   int
	Rate     float64
	Input    string
	Output   string
	Share    float64
	Prefixes int
	Turns    int
	Duration time.Duration
	Seed     uint64

	TTFT, ITL, Interval time.Duration
	Planner             bool
	Budget              int
	Records             bool
	SVG                 string
}

// Add adds the flags to a set.
func (f *Simulate) Add(fs *pflag.FlagSet) {
	fs.StringVarP(&f.File, "file", "f", "", "topology file: numbers of workers, limits of engines, settings")
	fs.StringVar(&f.Compare, "compare", "", "another topology file, played with the same load")
	fs.StringVar(&f.Profile, "profile", "", "profile of the workers, as JSON (docs/simulation.md)")
	fs.StringVar(&f.PrefillProfile, "prefill-profile", "", "profile of prefill workers, if it differs")
	fs.StringVar(&f.Tables, "dynamo-profile", "", "folder of results of NVIDIA Dynamo's profiler: its tables, in place of the profile's costs of steps")
	fs.IntVar(&f.Prefill, "prefill", 0, "number of prefill workers, without -f")
	fs.IntVar(&f.Decode, "decode", 1, "number of decode workers, without -f")
	SharedDevices(fs, &f.SharedDevices)
	fs.StringVar(&f.Trace, "trace", "", "trace of requests in the format of Mooncake")
	fs.Float64Var(&f.Speed, "speed", 1, "play the trace so many times as fast")
	fs.IntVar(&f.Repeat, "repeat", 1, "play the trace so many times, one after the other")
	fs.Float64Var(&f.Rate, "rate", 0, "conversations per second, at random times")
	fs.StringVar(&f.Input, "isl", "1024", "tokens of prompts: a number, or uniform:LOW:HIGH, normal:MEAN:DEVIATION, lognormal:MEAN:DEVIATION")
	fs.StringVar(&f.Output, "osl", "128", "tokens of answers, as --isl")
	fs.Float64Var(&f.Share, "prefix-share", 0, "part of each first prompt that is one of --prefixes common beginnings, 0 to 1")
	fs.IntVar(&f.Prefixes, "prefixes", 1, "number of common beginnings")
	fs.IntVar(&f.Turns, "turns", 1, "requests of each conversation, one after the other")
	fs.DurationVar(&f.Duration, "duration", 10*time.Minute, "how long conversations begin, with --rate")
	fs.Uint64Var(&f.Seed, "seed", 1, "seed of times and lengths")
	fs.DurationVar(&f.TTFT, "ttft", 0, "target of the time to the first token")
	fs.DurationVar(&f.ITL, "itl", 0, "target of the mean time between the tokens of an answer")
	fs.DurationVar(&f.Interval, "interval", 0, "length of the intervals of the series (default 1m)")
	fs.BoolVar(&f.Planner, "planner", false, "play the first cluster once more under the planner, which begins with its workers; needs --ttft and --itl")
	fs.IntVar(&f.Budget, "budget", 0, "devices that the planner may use; 0: those of the first cluster")
	fs.BoolVar(&f.Records, "records", false, "with JSON, a record of each request")
	fs.StringVar(&f.SVG, "svg", "", "write charts of the series of the first cluster into this file")
}

// SharedDevices adds the flag for how many devices the workers share.
func SharedDevices(fs *pflag.FlagSet, into *int) {
	fs.IntVar(into, "shared-devices", 0, "devices that the workers share, in turns, as CPU workers of a machine do; 0: each has its own")
}

// Shared is a list of flags that two programs have.
type Shared interface{ Add(*pflag.FlagSet) }

// Names returns the names of shared flags.
func Names(f Shared) (names []string) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	f.Add(fs)
	fs.VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
	return names
}

// Args writes those flags of a command line that are shared as the command line of the other program, with
// those alone that were given. names are those of [Names].
func Args(given *pflag.FlagSet, names []string) (args []string) {
	for _, name := range names {
		fl := given.Lookup(name)
		if fl == nil || !fl.Changed {
			continue
		}
		values := []string{fl.Value.String()}
		if list, ok := fl.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			args = append(args, "--"+name+"="+v)
		}
	}
	return args
}

// Size are the flags of dynlab size, which dynctl plan has too.
type Size struct {
	File           string
	Profiles       []string
	PrefillProfile string
	Trace          string
	Speed          float64
	TTFT, ITL      time.Duration
	Percentile     int
	Budget         int
	Save           string
}

// Add adds the flags to a set.
func (f *Size) Add(fs *pflag.FlagSet) {
	fs.DurationVar(&f.TTFT, "ttft", 0, "target of the time to the first token")
	fs.DurationVar(&f.ITL, "itl", 0, "target of the mean time between the tokens of an answer")
	fs.IntVar(&f.Percentile, "percentile", 95, "percent of the requests that must keep both targets")
	fs.IntVar(&f.Budget, "budget", 8, "most devices that a topology may take")
	fs.StringVar(&f.Trace, "trace", "", "trace of requests in the format of Mooncake")
	fs.Float64Var(&f.Speed, "speed", 1, "play the trace so many times as fast")
	fs.StringArrayVar(&f.Profiles, "profile", nil, "profile of the workers, as JSON (docs/simulation.md); several, of workers of 1, 2, ... devices, to choose engine.tensor_parallel")
	fs.StringVar(&f.PrefillProfile, "prefill-profile", "", "profile of prefill workers, if it differs")
	fs.StringVarP(&f.File, "file", "f", "", "topology file with limits of engines and settings; its numbers of workers do not count")
	fs.StringVar(&f.Save, "save", "", "write the topology that is chosen into this file, for dynctl up -f")
}
