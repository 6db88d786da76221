package agent

import (
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"
)

// Lengths of a CPU profile.
const (
	profileDefault = 10 * time.Second
	profileMost    = 2 * time.Minute
)

// serveProfile answers requests of go tool pprof: "profile" for CPU time during some
// seconds, or the name of one of the runtime's profiles (heap, goroutine, allocs, mutex,
// block). During a CPU profile, threads of the CPU devices carry the label
// cpu.OperatorLabel. With debug above 0, profiles other than the CPU's are text.
func (a *Agent) serveProfile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name == "profile" {
		a.serveCPUProfile(w, r)
		return
	}
	p := pprof.Lookup(name)
	if p == nil {
		http.Error(w, "no such profile; use profile (CPU time), heap, goroutine, allocs, mutex, block", http.StatusNotFound)
		return
	}
	debug, err := strconv.Atoi(r.FormValue("debug"))
	if err != nil || debug <= 0 {
		debug = 0
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	_ = p.WriteTo(w, debug) // an error means that the caller has left
}

func (a *Agent) serveCPUProfile(w http.ResponseWriter, r *http.Request) {
	length := profileDefault
	if text := r.FormValue("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if length = time.Duration(n) * time.Second; err != nil || length <= 0 || length > profileMost {
			http.Error(w, "seconds: expected a number from 1 to "+strconv.Itoa(int(profileMost/time.Second)), http.StatusBadRequest)
			return
		}
	}
	for _, d := range a.devices {
		if d, ok := d.(cpuDevice); ok {
			defer d.LabelOperators()()
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := pprof.StartCPUProfile(w); err != nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		http.Error(w, "a CPU profile is running already", http.StatusConflict)
		return
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(length):
	case <-r.Context().Done():
	}
}
