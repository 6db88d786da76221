package up

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/jointoken"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// screen is the state of up's screen between frames.
type screen struct {
	known   map[string]cluster.Worker
	front   string // what the frontend waits for
	frontUp bool
	url     string
	barred  barred
}

// showStores shows the first node while there is nothing else to show.
func (u *localNodes) showStores() {
	if !u.fresh {
		return
	}
	u.show.Show(progress.Screen{Operation: "up", Subject: u.session.Config.Cluster, Title: u.session.Config.Cluster + "  starting", Rows: u.storeRows(u.session.Out.Now())})
}

// storeRows are the store, usually etcd, and NATS, which the first node brings up.
func (u *localNodes) storeRows(now time.Time) []progress.Row {
	if !u.fresh {
		return nil
	}
	nats := human.Address(u.endpoints.NATS)
	if nats == "" && len(u.endpoints.Etcd) > 0 {
		nats = "none"
	}
	var rows []progress.Row
	first, kind := "etcd", "embedded"
	if d := u.session.Config.Discovery; d.InFiles() {
		first, kind = "store", "files"
	} else if d.InNATS() {
		first, kind = "store", "nats"
	}
	for _, s := range []struct{ item, kind, addr string }{
		{first, kind, human.Address(strings.Join(u.endpoints.Etcd, ", "))}, {"nats", "embedded", nats},
	} {
		up := s.addr != ""
		r := progress.Row{Item: s.item, Kind: s.kind, Word: "starting", State: progress.Running, Detail: s.addr, Took: u.led.Note(s.item, up, now)}
		if s.item == "nats" && u.session.Config.NATS.URL != "" {
			r.Kind = "external"
		}
		if up {
			r.Word, r.State, r.Took = "ready", progress.Done, max(r.Took, time.Millisecond)
		}
		r.Cells = []string{r.Item, r.Kind, "", r.Word}
		r.Line = strings.TrimSpace(strings.Join([]string{r.Item, r.Kind, r.Word, s.addr}, " "))
		rows = append(rows, r)
	}
	return rows
}

// frame shows the present state. there names the nodes that have joined; nil means
// all.
func (u *uplift) frame(v client.View, there map[string]bool, s settle.Standing) progress.Screen {
	now := u.session.Out.Now()
	name := u.session.Config.Cluster
	out := progress.Screen{Operation: "up", Subject: name, Footer: "ctrl-c stops watching only."}
	out.Rows = u.storeRows(now)
	out.Rows = append(out.Rows, u.nodeRows(v, there, now)...)
	if there != nil {
		out.Title = fmt.Sprintf("%s  starting  %d of %s up", name, len(there), human.Plural(len(u.pids), "node"))
		return out
	}
	out.Rows = append(out.Rows, s.Rows(u.led, v.Nodes, u.screen.known, now)...)
	front := progress.Row{Item: "frontend", Word: "waiting", State: progress.Waiting, Detail: u.screen.front, Line: "frontend waiting " + u.screen.front}
	total, ready := s.Want+1, s.Ready
	switch {
	case u.screen.frontUp:
		url := u.screen.url
		if url == "" {
			url = "none in this cluster"
		}
		front.Word, front.State, front.Detail, front.Line = "ready", progress.Done, url, "frontend ready "+url
		ready++
	case s.Serving():
		front.State = progress.Running
	}
	front.Cells = []string{"frontend", "", "", front.Word}
	out.Rows = append(out.Rows, front)
	out.Title = fmt.Sprintf("%s  starting  %d of %d ready", name, ready, total)
	if ready == total {
		out.Title, out.Footer = fmt.Sprintf("%s  ready", name), ""
	}
	return out
}

// nodeRows are the local nodes that run, one row each.
func (u *localNodes) nodeRows(v client.View, there map[string]bool, now time.Time) []progress.Row {
	host, _ := os.Hostname()
	var rows []progress.Row
	for _, name := range slices.SortedFunc(maps.Keys(u.pids), human.CompareNodes) {
		r := progress.Row{Item: name, Kind: "agent", Word: "starting", State: progress.Running}
		var devices, prefers []string
		for _, n := range v.Nodes {
			if n.Name != name || n.Host != host || n.PID != u.pids[name] {
				continue
			}
			r.Word, r.State = "ready", progress.Done
			for _, d := range n.Devices {
				devices = append(devices, human.Device([]cluster.Node{n}, n.ID, d.ID))
			}
			for _, role := range n.Roles {
				prefers = append(prefers, string(role))
			}
		}
		if there != nil && !there[name] {
			r.Word, r.State = "starting", progress.Running
		}
		r.Took = u.led.Note("node "+name, r.State == progress.Done, now)
		if r.State == progress.Done {
			r.Took = max(r.Took, time.Millisecond)
			r.Detail = strings.Join(devices, ", ")
			if len(prefers) > 0 {
				r.After = "prefers " + strings.Join(prefers, ", ")
			}
		}
		r.Cells = []string{name, "agent", "", r.Word}
		r.Line = name + " agent " + r.Word
		rows = append(rows, r)
	}
	return rows
}

// Result is the outcome as -o json prints it.
type Result struct {
	Cluster    string   `json:"cluster"`
	URL        string   `json:"url"`
	Model      string   `json:"model"`
	Quantize   string   `json:"quantize,omitempty"`
	Prefill    int      `json:"prefill"`
	Decode     int      `json:"decode"`
	Encode     int      `json:"encode"`
	Workers    []string `json:"workers"`
	Ready      bool     `json:"ready"`
	Changed    bool     `json:"changed"` // something was declared that was not before
	Generation int64    `json:"generation"`
	DurationMS int64    `json:"duration_ms"`

	builtin bool
}

func (u *uplift) result(url string) Result {
	_, decode := u.topo.Specs(cluster.RoleDecode)
	r := Result{
		Cluster: u.c.Name, URL: url, Model: u.topo.Model.Name, Quantize: u.topo.Model.Quantize, Prefill: u.topo.Prefill, Decode: u.topo.Decode, Encode: u.topo.Encode,
		Workers: []string{}, Ready: !u.o.NoWait, Changed: !u.unchanged, Generation: u.topo.Generation, DurationMS: u.session.Out.Now().Sub(u.begin).Milliseconds(),
		builtin: u.topo.Model.Builtin() == cluster.BuiltinModelName && !decode.External(),
	}
	for _, w := range u.watch.View().Workers() {
		r.Workers = append(r.Workers, w.Name)
	}
	return r
}

// answer prints where the cluster answers, and a request that works.
func (u *uplift) answer(r Result) error {
	s := u.session
	var text strings.Builder
	if r.URL != "" {
		fmt.Fprintln(&text, r.URL)
		if r.Decode > 0 {
			fmt.Fprintln(&text, r.curl(s, u.screen.barred == needsKey))
		}
	}
	if s.Out.Prose() {
		model := r.Model
		if r.Quantize != "" {
			model += " as " + r.Quantize
		}
		took := human.Duration(time.Duration(r.DurationMS) * time.Millisecond)
		switch {
		case u.unchanged && u.o.File != "":
			s.Out.Tell("nothing changed: %s is as %s says: %s, model %s", r.Cluster, filepath.Base(u.o.File), human.Shape(u.topo), model)
		case !r.Ready:
			s.Out.Tell("%s is declared: %s, model %s", r.Cluster, human.Shape(u.topo), model)
		default:
			s.Out.Tell("%s is ready after %s: %s, model %s", r.Cluster, took, human.Shape(u.topo), model)
		}
		if r.URL == "" {
			s.Out.Note("no node of this cluster has a frontend")
		}
		if u.screen.barred != "" {
			s.Out.Note("%s", u.screen.barred)
		}
		if r.builtin && r.Decode > 0 {
			s.Out.Note("the built-in model has 4 million weights: it knows this system and little else; --model DIR serves a real one")
		}
	}
	if u.fresh && u.endpoints.Host != "" && s.Out.Prose() {
		if line, err := jointoken.Line(s, u.endpoints); err != nil {
			s.Out.Note("no join token: %v", err)
		} else {
			s.Out.Tell("on another machine: %s", line)
		}
	}
	if err := s.Out.Answer(output.Answer{Data: r, Names: r.Workers, Text: text.String()}); err != nil {
		return err
	}
	if u.o.NoWait {
		return exit.Silent{Code: exit.Accepted}
	}
	return nil
}

// curl is a command line that asks the model something, with the place of the API key if
// there is one.
func (r Result) curl(s *session.Session, needsKey bool) string {
	var body strings.Builder
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	_ = enc.Encode(struct { // cannot fail: strings and ints
		Model     string    `json:"model"`
		MaxTokens int       `json:"max_tokens"`
		Messages  []message `json:"messages"`
	}{r.Model, 32, []message{{"user", "Hello"}}})
	key := ""
	if needsKey || s.FrontendKey() != "" {
		value := "$" + session.FrontendKeyVariable
		if strings.Contains(s.Env.Variables().Get(session.FrontendKeyVariable), ",") {
			value = "${" + session.FrontendKeyVariable + "%%,*}" // the first of several
		}
		key = ` -H "Authorization: Bearer ` + value + `"`
	}
	if strings.HasPrefix(r.URL, "https:") {
		f := s.Config.Frontend.TLSFiles()
		for _, o := range []struct {
			flag string
			file config.TLSFile
		}{{"--cacert", f.CA}, {"--cert", f.Cert}, {"--key", f.Key}} {
			if o.file.Value != "" && !o.file.Inline() {
				key += " " + o.flag + " " + human.ShellQuote(o.file.Value)
			}
		}
	}
	return fmt.Sprintf("curl %s/v1/chat/completions -H 'Content-Type: application/json'%s -d %s", r.URL, key, human.ShellQuote(strings.TrimSpace(body.String())))
}
