package topofile

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/config"
)

// Schema is the JSON schema of the files, for editors.
func Schema() ([]byte, error) {
	root := object("Topology of a dynctl cluster: dynctl up -f FILE.")
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "dynctl topology"
	describe(root, Fields())
	pool := object("A model with workers of its own.")
	describe(pool, poolFields())
	of := root["properties"].(map[string]any)
	of[poolSection] = map[string]any{"type": "object", "description": "Models beside that one, with workers of their own, by name.", "additionalProperties": pool}
	of[attachedSection] = map[string]any{"type": "array", "description": "Servers of other engines that run already.", "items": schemaOfAttached()}
	b, err := json.MarshalIndent(root, "", "  ")
	return append(b, '\n'), err
}

// describe adds the schemas of fields to that of their object.
func describe(root map[string]any, list []Field) {
	for _, fd := range list {
		at := root
		parts := strings.Split(fd.Path, ".")
		for i := range parts[:len(parts)-1] {
			at = sectionSchema(at, strings.Join(parts[:i+1], "."))
		}
		at["properties"].(map[string]any)[parts[len(parts)-1]] = fd.schema()
	}
}

func object(description string) map[string]any {
	return map[string]any{"type": "object", "description": description, "additionalProperties": false, "properties": map[string]any{}}
}

// sections says what they are about.
var sections = map[string]string{
	"model": "What is served.", "engine": "How all workers compute, and within which limits.",
	"prefill":  "Workers that compute the KV blocks of prompts: their number, or more.",
	"decode":   "Workers that generate tokens: their number, or more.",
	"encode":   "Workers that turn images into embeddings: their number, or more.",
	"frontend": "What frontends remember. Changes at run time.",
	"disagg":   "Local or remote prefill. Changes at run time.", "router": "Choice of the worker. Changes at run time.",
	"rollout":        "How many workers of a role change at a time. Changes at run time.",
	"planner":        "What load the planner plans workers for, and whether it changes them. Changes at run time.",
	"prefill.engine": "Settings of prefill workers that differ from engine.", "decode.engine": "Settings of decode workers that differ from engine.",
	"encode.engine":         "Settings of encode workers that differ from engine.",
	"engine.server":         "The server of a backend that is another engine: vllm, sglang, trtllm or openai.",
	"prefill.engine.server": "Settings of servers for prefill that differ from engine.server.",
	"decode.engine.server":  "Settings of servers for decode that differ from engine.server.",
	"encode.engine.server":  "Settings of servers that encode for others that differ from engine.server.",
}

// sectionSchema returns the schema of a section of parent, made if need be.
func sectionSchema(parent map[string]any, path string) map[string]any {
	name := path[strings.LastIndexByte(path, '.')+1:]
	siblings := parent["properties"].(map[string]any)
	there, ok := siblings[name].(map[string]any)
	if !ok {
		there = object(sections[path])
		siblings[name] = there
		if workers, short := field(path + ".workers"); short {
			siblings[name] = map[string]any{"description": sections[path], "anyOf": []any{workers.schema(), there}}
		}
	}
	if alternatives, short := there["anyOf"].([]any); short {
		return alternatives[1].(map[string]any)
	}
	return there
}

func (fd Field) schema() map[string]any {
	s := map[string]any{"description": fd.Key.Help}
	if fd.form != plainText {
		s["anyOf"] = fd.form.schemas()
		return s
	}
	switch fd.Key.Kind {
	case config.KindBool:
		s["type"] = "boolean"
	case config.KindInt:
		s["type"], s["minimum"] = "integer", fd.Key.Min
		if fd.Key.Max != 0 {
			s["maximum"] = fd.Key.Max
		}
		if fd.Numbers != nil {
			s["enum"] = slices.Clone(fd.Numbers)
		}
	case config.KindRatio:
		s["type"], s["minimum"], s["maximum"] = "number", 0, fd.Key.Max
	case config.KindList:
		s["type"], s["items"] = "array", map[string]any{"type": "string"}
	case config.KindDuration:
		s["type"], s["pattern"] = "string", `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	default:
		s["type"] = "string"
		if fd.Key.Choices != nil && fd.Key.Reads == nil {
			s["enum"] = slices.Clone(fd.Key.Choices)
		}
	}
	return s
}
