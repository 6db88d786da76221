package topofile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// form says how a text may stand in a file beside as text.
type form int

const (
	plainText   form = iota // no other way
	commandLine             // words of a command line, or a list of them
	environment             // words of the form NAME=value, a list of them, or a mapping
)

// serverFields returns the fields of one External.
func serverFields(at string, of func(*File) *cluster.External) []Field {
	command := text(at+".command", "command line that starts the server, as text or as a list of words; what it needs for its role, port and KV is appended; no shell runs it", nil, func(f *File) *string { return &of(f).Command })
	command.form = commandLine
	var connectors []string
	for _, backend := range cluster.ExternalBackends() {
		for _, name := range cluster.ExternalConnectors(backend) {
			if !slices.Contains(connectors, name) {
				connectors = append(connectors, name)
			}
		}
	}
	return []Field{
		text(at+".url", "where a server of the engine runs already, like http://gpu-3:8001; dynctl attach takes several", nil, func(f *File) *string { return &of(f).URL }),
		command,
		{
			Path: at + ".env", form: environment,
			Key: config.Key{Kind: config.KindString, Help: "environment variables of the command, as a mapping; secrets belong into files of the node"},
			get: func(f *File) any { return cluster.JoinWords(of(f).Environment()) },
			set: func(f *File, v any) {
				lines, _ := cluster.Words(v.(string)) // check has read it
				of(f).SetEnvironment(lines)
			},
		},
		number(at+".port", "port of the server that the command starts; without it a free one", maxPort, func(f *File) *int { return &of(f).Port }),
		text(at+".served_model", "name by which the server knows the model; by default model.name", nil, func(f *File) *string { return &of(f).Model }),
		text(at+".connector", "how servers exchange KV: nixl or mooncake for vllm, bootstrap for sglang, context-first or generation-first for trtllm, or none", connectors, func(f *File) *string { return &of(f).Connector }),
		text(at+".host", "address at which other servers reach this one to exchange KV", nil, func(f *File) *string { return &of(f).Host }),
		number(at+".bootstrap_port", "port where servers meet to exchange KV: SGLang's bootstrap server, vLLM's Mooncake connector", maxPort, func(f *File) *int { return &of(f).BootstrapPort }),
		text(at+".kv_events", "where the server publishes KV events, like tcp://gpu-3:5557, or off", nil, func(f *File) *string { return &of(f).Events }),
		text(at+".kv_replay", "where KV events that were missed are asked for, like tcp://gpu-3:5558", nil, func(f *File) *string { return &of(f).Replay }),
		toggle(at+".sleep", "the server is started so that dynctl sleep can put it to sleep", func(f *File) *bool { return &of(f).Sleep }),
		path(at+".api_key_file", "file on the node with the API key of the server", func(f *File) *string { return &of(f).KeyFile }),
		path(at+".ca_file", "file on the node with certificates that the server's is checked against, beside the system's", func(f *File) *string { return &of(f).CAFile }),
		text(at+".pair", "only servers with the same text exchange KV", nil, func(f *File) *string { return &of(f).Pair }),
	}
}

const maxPort = 65535

// words reads a value that stands in a file as a list or a mapping.
func (form form) words(n *yaml.Node, fd Field) (string, error) {
	var words []string
	add := func(prefix string, item *yaml.Node) error {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return fmt.Errorf("%s in it; expected %s", config.DescribeNode(item), fd.Expect())
		}
		words = append(words, prefix+item.Value)
		return nil
	}
	switch {
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			if err := add("", item); err != nil {
				return "", err
			}
		}
	case n.Kind == yaml.MappingNode && form == environment:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if err := add(n.Content[i].Value+"=", n.Content[i+1]); err != nil {
				return "", err
			}
		}
	default:
		return "", fmt.Errorf("%s is not %s", config.DescribeNode(n), fd.Expect())
	}
	return cluster.JoinWords(words), nil
}

// check refuses a text that cannot be split, and variables that no line can hold.
func (form form) check(text string) error {
	if form == plainText {
		return nil
	}
	words, err := cluster.Words(text)
	if err == nil && form == environment && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "\n") }) {
		return errors.New("the value of a variable has several lines; it may have one")
	}
	return err
}

// written is a value of the field as files have it.
func (fd Field) written(v any) any {
	if line, ok := v.(string); ok && fd.form == environment {
		mapping := map[string]string{}
		words, _ := cluster.Words(line) // get has joined them
		for _, word := range words {
			name, value, _ := strings.Cut(word, "=")
			mapping[name] = value
		}
		return mapping
	}
	return config.Value{Value: v}.Plain()
}

// schemas describes all the ways of writing a value.
func (form form) schemas() []any {
	of := func(kind string) map[string]any { return map[string]any{"type": kind} }
	list := of("array")
	list["items"] = of("string")
	out := []any{of("string"), list}
	if form == environment {
		mapping := of("object")
		mapping["additionalProperties"] = map[string]any{"type": []any{"string", "number", "boolean"}}
		out = append(out, mapping)
	}
	return out
}
