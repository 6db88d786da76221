package judge

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Servers judges the workers whose engines others wrote: whether the servers answer, exchange KV
// and tell what routing needs.
func Servers(v client.View) Finding {
	s := servers{models: map[string][]cluster.Worker{}, waits: map[string]bool{}, commands: map[string]string{}}
	for _, w := range v.Workers() {
		a := v.Assignments[w.Name]
		if !a.Engine.External() {
			continue
		}
		s.all++
		if w.ServerStatus == nil {
			s.absent(w, a)
			s.waits[w.Model] = true
			continue
		}
		s.models[w.Model] = append(s.models[w.Model], w)
		s.commands[w.Name] = a.Engine.Server.Command
		s.alone(w)
	}
	if s.all == 0 {
		return Skipped("no worker has an engine of others")
	}
	for _, model := range slices.Sorted(maps.Keys(s.models)) {
		s.together(model, s.models[model])
	}
	s.adapters(v)
	if len(s.wrong) == 0 {
		return good("%s of other engines, all as they should be", human.Plural(s.all, "server")).With("servers", s.all)
	}
	slices.SortStableFunc(s.wrong, func(a, b serverFault) int { return severity(b.status) - severity(a.status) })
	var texts []string
	for _, f := range s.wrong {
		texts = append(texts, f.text)
	}
	return Finding{Status: s.wrong[0].status, Found: strings.Join(texts, "; "), Fix: s.wrong[0].fix}.With("servers", s.all).With("faults", len(s.wrong))
}

func severity(status string) int { return slices.Index([]string{OK, Warn, Fail}, status) }

type serverFault struct{ status, text, fix string }

type servers struct {
	all      int
	models   map[string][]cluster.Worker // that have a server, by model
	waits    map[string]bool             // models with workers that have none
	commands map[string]string           // that started servers, by worker; empty for one that ran already
	wrong    []serverFault
}

func (s *servers) add(status, fix, format string, args ...any) {
	s.wrong = append(s.wrong, serverFault{status, fmt.Sprintf(format, args...), fix})
}

// absent judges a worker that has no server yet, or lost it.
func (s *servers) absent(w cluster.Worker, a cluster.Assignment) {
	if w.Reason == "" {
		return // the workers' own finding
	}
	status, fix := Warn, "dynctl logs "+w.Name
	if w.State == cluster.StateFailed {
		status = Fail
	}
	at := a.Engine.Server.URL
	switch text := strings.ToLower(w.Reason); {
	case strings.Contains(text, "401"), strings.Contains(text, "403"), strings.Contains(text, "api key"):
		fix = "put the key of the server into a file of the node: server.api_key_file"
	case strings.Contains(text, "certificate"), strings.Contains(text, "x509"), strings.Contains(text, "tls"):
		fix = "give the node the certificates that sign the server's: server.ca_file"
	case at != "" && (strings.Contains(text, "refused") || strings.Contains(text, "no such host") || strings.Contains(text, "no route") || strings.Contains(text, "timeout") || strings.Contains(text, "deadline")):
		fix = fmt.Sprintf("curl %s/health on node %s: is it started, and its port open?", strings.TrimSuffix(at, "/"), w.Node)
	}
	s.add(status, fix, "%s has no server of %s: %s", w.Name, a.Engine.Backend, w.Reason)
}

// alone judges what a server tells by itself.
func (s *servers) alone(w cluster.Worker) {
	sv := w.ServerStatus
	switch e := sv.Events; {
	case !w.Role.HoldsKV():
	case e == nil && (sv.Backend == cluster.BackendVLLM || sv.Backend == cluster.BackendSGLang):
		s.add(Warn, "start it with --kv-events-config and say where: server.kv_events", "%s: nobody follows its KV events, so that prompts are not routed by its cache", w.Name)
	case e == nil:
	case e.Publishers == 0:
		s.add(Fail, "does the server publish there (--kv-events-config), and is the port open for node "+w.Node+"?", "%s: no KV events come from %s", w.Name, e.Endpoint)
	case e.Undecodable > 0:
		s.add(Fail, "its events have a form that is not known here: report its version, and set kv_events: off until then", "%s: %d messages of KV events of version %s make no sense", w.Name, e.Undecodable, human.OrDash(sv.Version))
	case e.Gaps > e.Replays:
		s.add(Warn, "give it a replay_endpoint and say where: server.kv_replay", "%s: %d losses of KV events, %d made good", w.Name, e.Gaps, e.Replays)
	}
	if sv.NoLoad != "" {
		s.add(Warn, "let the server tell metrics ("+metricsFlag(sv.Backend)+")", "%s does not tell its load: %s", w.Name, sv.NoLoad)
	}
	if sv.FailedLegs > 0 {
		status := Warn
		if sv.FailedLegs == sv.FirstLegs {
			status = Fail
		}
		s.add(status, legFix(sv), "%s: %d of %d prompts for decode servers failed: %s", w.Name, sv.FailedLegs, sv.FirstLegs, sv.LegFailure)
	}
	if sv.StrandedLegs > 0 {
		s.add(Warn, "are decode servers so busy that they come too late?", "%s: the KV of %d of %d prompts was not fetched in time", w.Name, sv.StrandedLegs, sv.FirstLegs)
	}
}

func metricsFlag(backend string) string {
	switch backend {
	case cluster.BackendSGLang:
		return "--enable-metrics"
	case cluster.BackendTensorRTLLM:
		return "return_perf_metrics"
	case cluster.BackendOpenAI:
		return "llama.cpp: --metrics"
	}
	return "/metrics"
}

func legFix(sv *cluster.ServerStatus) string {
	switch sv.Backend {
	case cluster.BackendVLLM:
		return `start it with --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'`
	case cluster.BackendSGLang:
		return "are both servers of one version, with the same tensor parallelism and page size?"
	}
	return "docs/engines.md has the command lines of both sides"
}

// together judges the servers of one model with each other.
func (s *servers) together(model string, all []cluster.Worker) {
	of := map[cluster.Role][]cluster.Worker{}
	for _, w := range all {
		of[w.Role] = append(of[w.Role], w)
	}
	prefills, decodes := of[cluster.RolePrefill], of[cluster.RoleDecode]
	s.encoders(model, of[cluster.RoleEncode], slices.Concat(prefills, decodes))
	for _, p := range prefills {
		var pairs []cluster.Worker
		for _, d := range decodes {
			if d.ServerStatus.Backend == p.ServerStatus.Backend && d.ServerStatus.Pair == p.ServerStatus.Pair && d.ServerStatus.Connector == p.ServerStatus.Connector {
				pairs = append(pairs, d)
			}
		}
		if len(pairs) == 0 {
			if !s.waits[model] {
				s.unpaired(p, decodes)
			}
			continue
		}
		for _, d := range pairs {
			if p.ServerStatus.BlockSize > d.ServerStatus.BlockSize && d.ServerStatus.BlockSize > 0 && p.ServerStatus.Backend == cluster.BackendVLLM {
				s.add(Fail, "start both with the same --block-size", "%s has KV blocks of %d tokens, larger than the %d of %s", p.Name, p.ServerStatus.BlockSize, d.ServerStatus.BlockSize, d.Name)
			}
			if loopback(p.ServerStatus.SideChannel) && hostOf(p.ServerStatus.URL) != hostOf(d.ServerStatus.URL) {
				fix := "set server.host of " + p.Name + " to an address of its machine"
				if p.ServerStatus.Backend == cluster.BackendVLLM {
					fix = "start it with VLLM_NIXL_SIDE_CHANNEL_HOST=" + hostOf(p.ServerStatus.URL) + ", or " + fix
				}
				s.add(Fail, fix, "%s tells %s to fetch KV from %s, which is another machine there", p.Name, d.Name, p.ServerStatus.SideChannel)
			}
		}
	}
	for _, d := range decodes {
		if d.ServerStatus.NeedsPrefill && len(prefills) == 0 && !s.waits[model] {
			s.add(Fail, "attach or start a prefill server of "+d.ServerStatus.Backend, "%s computes no prompts, and %s has no prefill server", d.Name, model)
		}
	}
	least, most := lengths(slices.Concat(prefills, decodes))
	if least != most {
		s.add(Warn, "start all with the same context length", "servers of %s take prompts of %d to %d tokens: requests are limited to the least", model, least, most)
	}
}

// unpaired says why a prefill server has nobody to exchange KV with.
func (s *servers) unpaired(p cluster.Worker, decodes []cluster.Worker) {
	switch i := slices.IndexFunc(decodes, func(d cluster.Worker) bool { return d.ServerStatus.Backend == p.ServerStatus.Backend }); {
	case i < 0:
		s.add(Fail, "attach or start a decode server of "+p.ServerStatus.Backend, "%s has no decode server of %s to exchange KV with", p.Name, p.ServerStatus.Backend)
	case decodes[i].ServerStatus.Connector != p.ServerStatus.Connector:
		s.add(Fail, "give both the same connector", "%s and %s exchange no KV: connectors %s and %s", p.Name, decodes[i].Name, p.ServerStatus.Connector, decodes[i].ServerStatus.Connector)
	default:
		d := decodes[i]
		s.add(Fail, "run the same version, model and KV type on both, or state a common server.pair", "%s and %s exchange no KV: %s", p.Name, d.Name, differ(p.ServerStatus.Pair, d.ServerStatus.Pair))
	}
}

// differ shows where two texts of parts differ.
func differ(a, b string) string {
	one, other := strings.Split(a, "|"), strings.Split(b, "|")
	if len(one) != len(other) {
		return fmt.Sprintf("%q is not %q", a, b)
	}
	var parts []string
	for i := range one {
		if one[i] != other[i] {
			parts = append(parts, fmt.Sprintf("%q is not %q", one[i], other[i]))
		}
	}
	return strings.Join(parts, ", ")
}

// lengths returns the least and the largest known context length.
func lengths(all []cluster.Worker) (least, most int) {
	for _, w := range all {
		if n := w.ServerStatus.MaxModelLen; n > 0 {
			if least == 0 || n < least {
				least = n
			}
			most = max(most, n)
		}
	}
	return least, most
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func loopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}
