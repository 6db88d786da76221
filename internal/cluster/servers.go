package cluster

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// serverOptions names the options of engines that say something about a server of its own:
// what it is, and on which devices its worker is placed. All others go to its command line.
var serverOptions = []string{"backend", "device", "tensor_parallel", "server"}

// checkServers reports what is wrong with the workers whose engines others wrote.
func (t Topology) checkServers(wrong func(field, format string, args ...any)) {
	said := map[string]bool{}
	for _, r := range Roles {
		if t.Count(r) == 0 {
			continue
		}
		// at names a field where it is set: at the role, or for all.
		own := t.RoleSpec(r)
		say := func(name string, atRole bool, format string, args ...any) {
			if atRole {
				name = string(r) + "." + name
			}
			if !said[name] {
				wrong(name, format, args...)
			}
			said[name] = true
		}
		m, e := t.Specs(r)
		server := own.Engine.Server
		var alone External // of a server that no other role shares
		if t.Decode == 0 {
			alone = e.Server
		}
		if _, decode := t.Specs(RoleDecode); r == RoleEncode && t.Decode > 0 && (e.External() || decode.External()) && e.Backend != decode.Backend {
			say("backend", own.Engine.Backend != "", "encode workers of %s give no embeddings to workers of %s", engineWords(e), engineWords(decode))
			continue
		}
		switch {
		case !e.External():
			if e.Server != (External{}) {
				say("backend", own.Engine.Backend != "" || server != (External{}), "a server is described, which only the engines %s have", strings.Join(ExternalBackends(), ", "))
			}
			continue
		case r == RoleEncode && !e.Encodes():
			say("backend", own.Engine.Backend != "", "no server of %s computes the embeddings of images for others here: leave out encode workers, it sees images itself", e.Backend)
			continue
		case r == RoleEncode && t.Model.Path != "":
			wrong("model", "servers of %s encode what is in clients' own requests: leave its path out, so that they get these", e.Backend)
		case r == RoleEncode && !slices.Contains([]string{"", "none"}, cmp.Or(server.Connector, alone.Connector)):
			say("server.connector", server.Connector != "", "encode workers exchange no KV blocks: leave it out")
		case r == RolePrefill && len(ExternalConnectors(e.Backend)) == 0:
			say("backend", own.Engine.Backend != "", "servers of %s exchange no KV blocks, so that they cannot be prefill workers", e.Backend)
		}
		switch x := e.Server; {
		case x.URL == "" && x.Command == "":
			say("server.command", own.Engine.Backend != "", "a worker of %s needs the command line that starts its server, or the url of one that runs", e.Backend)
		case x.URL != "" && x.Command != "":
			say("server.command", server.Command != "", "a server that has a url runs already: give one of them")
		case x.URL != "" && (e.Device != "" || e.TensorParallel != 0 || x.Env != "" || x.Port != 0):
			say("server.url", server.URL != "", "a server that runs already has its devices, its environment and its port: leave them out")
		case x.URL != "" && t.Count(r) > 1:
			say("server.url", server.URL != "", "%d workers cannot share one server: dynctl attach takes each by its url", t.Count(r))
		}
		for i, option := range engineOptions {
			if !slices.Contains(serverOptions, option) && !reflect.ValueOf(e).Field(i).IsZero() {
				say(option, !reflect.ValueOf(own.Engine).Field(i).IsZero(), "a server of %s has its own option for it, which belongs into server.command", e.Backend)
			}
		}
		if m.Quantize != "" {
			say("quantize", own.Quantize != "", "a server of %s loads the weights itself: it takes its option for it in server.command", e.Backend)
		}
	}
}

// engineWords names an engine in a sentence.
func engineWords(e EngineSpec) string {
	if e.External() {
		return e.Backend
	}
	return "our own engine"
}

// checkPair reports why prefill and decode workers, some of which are servers of their own,
// exchange no KV blocks.
func (t Topology) checkPair(prefill, decode EngineSpec, wrong func(field, format string, args ...any)) {
	if len(ExternalConnectors(prefill.Backend)) == 0 && prefill.External() {
		return // told by checkServers
	}
	at := func(name string, prefillHas bool) string {
		if prefillHas {
			return "prefill." + name
		}
		return "decode." + name
	}
	connector := func(e EngineSpec) string {
		return cmp.Or(e.Server.Connector, append(ExternalConnectors(e.Backend), "none")[0])
	}
	p, d := connector(prefill), connector(decode)
	switch {
	case exchanging(prefill.Backend) != exchanging(decode.Backend):
		wrong(at("backend", t.PrefillSpec.Engine.Backend != ""), "workers of %s and of %s exchange no KV blocks: prefill and decode workers need the same engine",
			engineWords(prefill), engineWords(decode))
	case p != d:
		wrong(at("server.connector", t.PrefillSpec.Engine.Server.Connector != ""), "prefill and decode workers exchange KV blocks by the same connector: prefill has %s, decode %s", p, d)
	case p == "none":
		wrong(at("server.connector", t.PrefillSpec.Engine.Server.Connector != ""), "prefill workers without a connector are of no use to decode workers")
	case prefill.Server.Pair != decode.Server.Pair:
		wrong(at("server.pair", t.PrefillSpec.Engine.Server.Pair != ""), "prefill and decode workers exchange KV blocks only with the same pair: prefill has %s, decode %s", orDefault(prefill.Server.Pair), orDefault(decode.Server.Pair))
	}
}

var environmentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Environment returns the lines of [External.Env] as [External.SetEnvironment] wrote them.
func (x External) Environment() []string {
	if x.Env == "" {
		return nil
	}
	return strings.Split(x.Env, "\n")
}

// SetEnvironment sets Env to lines of the form NAME=value, in the order of their names.
func (x *External) SetEnvironment(lines []string) {
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(nameIn(a), nameIn(b)) })
	x.Env = strings.Join(lines, "\n")
}

// nameIn returns what stands before the first "=".
func nameIn(word string) string {
	name, _, _ := strings.Cut(word, "=")
	return name
}

// checkSecrets reports a command line or an environment that cannot be used, or that holds a
// secret. No message quotes a value.
func (x External) checkSecrets(wrong func(field, format string, args ...any)) {
	last := ""
	for _, line := range x.Environment() {
		name, value, ok := strings.Cut(line, "=")
		switch {
		case !ok || !environmentName.MatchString(name):
			wrong("server.env", "it is not all of the form NAME=value")
			return
		case name <= last:
			wrong("server.env", "%s does not come after %s: names come once, in their order", name, last)
		case Secret(name) && value != "":
			wrong("server.env", "%s looks like a secret, which everybody who reads the topology would see: put it into a file of the node (api_key_file for the key of the server; HF_TOKEN_PATH for that of Hugging Face)", name)
		}
		last = name
	}
	if x.Command == "" {
		return
	}
	words, err := CommandWords(x.Command)
	if err != nil {
		wrong("server.command", "%s", err)
	}
	for i, word := range words {
		option := strings.HasPrefix(word, "-")
		name, _, given := strings.Cut(word, "=")
		if given = given || option && i+1 < len(words); given && (option || environmentName.MatchString(name)) && Secret(name) {
			wrong("server.command", "%s looks like a secret, which everybody who reads the topology would see: put it into a file of the node, and name that in api_key_file", name)
		}
	}
}

// Names say of a value that it is secret, but not if they are those of files, or of times of tokens.
var (
	secretName = regexp.MustCompile(`SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(KEY|TOKEN)(_?[0-9]+)?$`)
	tokenTime  = regexp.MustCompile(`(FIRST|EACH|PER|INTER)_TOKEN$`)
	fileName   = regexp.MustCompile(`(_|KEY)(FILE|PATH|DIR)$`)
)

// Secret reports whether an environment variable or an option of that name is likely to hold
// a secret.
func Secret(name string) bool {
	name = strings.ToUpper(strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_"))
	return secretName.MatchString(name) && !fileName.MatchString(name) && !tokenTime.MatchString(name)
}
