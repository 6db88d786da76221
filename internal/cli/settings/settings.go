package settings

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
)

// Setting is one setting, as -o json prints it.
type Setting struct {
	Setting string `json:"setting"`
	Value   any    `json:"value"` // null if it is not set
	Default any    `json:"default"`
	Origin  string `json:"origin"` // of the value: "cluster" or "node", each dynamod's own configuration
	// Effective is the value that counts, and Source where it comes from: "cluster",
	// "default", or a file, variable or flag on some nodes. It is null where the nodes differ,
	// which ByNode tells, and where no node tells.
	Effective any            `json:"effective"`
	Source    string         `json:"source"`
	ByNode    map[string]any `json:"by_node,omitempty"`
	Help      string         `json:"help"`
	Error     string         `json:"error,omitempty"` // why the stored value is ignored

	text  string // of the value
	shown string // of the effective value; empty if it is unknown
}

// Where the value of a run-time setting comes from.
const (
	OriginCluster = "cluster" // it was set for all nodes
	originNode    = "node"    // each dynamod's own configuration counts
)

// All are all settings with their values now, on these nodes.
func All(ctx context.Context, c *client.Cluster, nodes []cluster.Node) ([]Setting, error) {
	stored, err := c.Settings(ctx)
	if err != nil {
		return nil, err
	}
	out := []Setting{}
	for _, k := range config.RuntimeKeys() {
		s := Setting{Setting: k.Name, Default: config.Value{Value: k.Default}.Plain(), Origin: originNode, Help: k.Help}
		if raw, ok := stored[k.Name]; ok {
			s.read(k, raw)
		}
		s.weigh(k, nodes)
		out = append(out, s)
	}
	return out, nil
}

// read decodes the stored value; a value that does not decode is not used.
func (s *Setting) read(k config.Key, raw json.RawMessage) {
	v, err := k.DecodeRuntime(raw)
	if err != nil {
		s.Error = err.Error()
		return
	}
	s.Origin = OriginCluster
	s.Value, s.text = config.Value{Value: v}.Plain(), config.Value{Value: v}.Text()
}

// Table shows settings with where their values come from.
func Table(items []Setting, wide bool) *output.Table {
	titles := []string{"SETTING", "VALUE", "DEFAULT", "ORIGIN"}
	if wide {
		titles = append(titles, "~WHAT IT DOES")
	}
	t := output.NewTable(titles...)
	for _, s := range items {
		value := human.OrDash(s.shown)
		if s.Error != "" {
			value = "ignored: " + s.Error
		}
		row := []string{s.Setting, value, fmt.Sprint(s.Default), s.Source}
		if wide {
			row = append(row, s.Help)
		}
		t.Add(row...)
	}
	return t
}

// Complete completes names, and values where there are a few.
func Complete(_ *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	name, _, valued := strings.Cut(text, "=")
	for _, k := range config.RuntimeKeys() {
		if !valued {
			out = append(out, cobra.CompletionWithDesc(k.Name+"=", k.Help))
			continue
		}
		if k.Name == name {
			for _, c := range k.Choices {
				out = append(out, k.Name+"="+c)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// CompleteNames completes names alone.
func CompleteNames(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	for _, k := range config.RuntimeKeys() {
		if !slices.Contains(args, k.Name) {
			out = append(out, cobra.CompletionWithDesc(k.Name, k.Help))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// Kind lists settings that change at run time.
func Kind() listing.Kind[Setting] {
	return listing.Kind[Setting]{
		What: "config",
		Items: func(ctx context.Context, s listing.Scene) ([]Setting, error) {
			return All(ctx, s.Cluster, s.View.Nodes)
		},
		Name:  func(r Setting) string { return r.Setting },
		Table: func(_ listing.Scene, items []Setting, wide bool) *output.Table { return Table(items, wide) },
	}
}

// ValueText is the value as dynctl set takes it; empty when it is not set.
func (s Setting) ValueText() string { return s.text }
