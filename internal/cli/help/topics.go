package help

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/topofile"
	"github.com/dynctl/dynctl/internal/tui"
)

func topicNames() []string {
	return []string{"environment", "exit-codes", "config", "topology", "formatting", "keys"}
}

// Topics are the help texts that belong to no command. The text on "config" is part
// of the command of that name.
func Topics() []*cobra.Command {
	short := map[string]string{
		"environment": "Environment variables",
		"exit-codes":  "What exit codes mean",
		"topology":    "Fields of topology files",
		"formatting":  "Forms of answers: tables, JSON, YAML, names",
		"keys":        "Keys of dynctl top",
	}
	var out []*cobra.Command
	for _, name := range topicNames() {
		if short[name] == "" {
			continue
		}
		out = append(out, &cobra.Command{Use: name, Short: short[name], Annotations: map[string]string{command.TopicAnnotation: name}})
	}
	return out
}

// Topic is the text of a topic. The environment says where files are looked for.
func Topic(name string, environ []string) string {
	switch name {
	case "environment":
		return topicEnvironment()
	case "exit-codes":
		return topicExitCodes()
	case "config":
		return topicConfig(environ)
	case "topology":
		return topicTopology()
	case "keys":
		return topicKeys()
	}
	return topicFormatting
}

func topicExitCodes() string {
	var b strings.Builder
	b.WriteString("Exit codes of dynctl:\n\n")
	for _, e := range exit.Meanings() {
		fmt.Fprintf(&b, "  %3d  %s\n", e.Code, e.Meaning)
	}
	return b.String()
}

func topicEnvironment() string {
	var b strings.Builder
	b.WriteString("A flag wins over an environment variable, that over the configuration file, and\nthat over the default. Every setting has a variable:\n\n")
	t := config.DynctlTable()
	for _, k := range t.Keys {
		names := t.Env(k)
		for _, a := range k.Aliases {
			names += ", " + a.Name
		}
		fmt.Fprintf(&b, "  %s\n      %s\n", names, k.Help)
	}
	fmt.Fprintf(&b, "  %s\n      configuration file\n", t.ConfigEnv())
	b.WriteString(`
Variables of others that count:

  NO_COLOR, CLICOLOR=0, TERM=dumb
      no colors; --color wins
  CI
      plain progress and no questions
  ACCESSIBLE
      plain lines instead of lines that are redrawn
  DYNAMOD_FRONTEND_API_KEY
      the key that frontends ask for, as dynamod knows it
  PATH
      where dynamod is looked for, after the directory of dynctl
`)
	return b.String()
}

func topicConfig(environ []string) string {
	t := config.DynctlTable()
	var b strings.Builder
	b.WriteString("dynctl config view [--origin] prints what is in force, and why.\n")
	b.WriteString("dynctl config set <key> <value> changes the file.\n\n")
	b.WriteString("The first of these files is read, and only that:\n\n")
	for _, p := range t.SearchPath(environ) {
		fmt.Fprintf(&b, "  %s\n", p)
	}
	fmt.Fprintf(&b, "\n--config or %s name another one. Unknown keys are errors. The keys, with defaults:\n\n", t.ConfigEnv())
	section := ""
	for _, k := range t.Keys {
		if s := k.Section(); s != section {
			section = s
			fmt.Fprintf(&b, "  %s:\n", s)
		}
		pad, name := "  ", k.Name
		if section != "" {
			pad, name = "    ", strings.TrimPrefix(k.Name, section+".")
		}
		fmt.Fprintf(&b, "%s%s: %s\n%s    %s\n", pad, name, k.DefaultString(), pad, k.Help)
	}
	return b.String()
}

func topicTopology() string {
	var b strings.Builder
	b.WriteString(`A topology file says what a namespace shall have: dynctl up -f FILE declares it,
dynctl diff -f FILE compares. What is left out is at its default. The least is:

  decode: 1

"decode: 4" is short for "decode: {workers: 4}". On the command line a field is set with
--set FIELD=VALUE; an empty value is the default. Examples are in configs/topologies, with
schema.json for editors. The fields:

`)
	perRole := []string{}
	for _, fd := range topofile.Fields() {
		if rest, ok := strings.CutPrefix(fd.Path, "decode.engine."); ok {
			perRole = append(perRole, rest)
			continue
		}
		if strings.HasPrefix(fd.Path, "prefill.engine.") || strings.HasPrefix(fd.Path, "encode.engine.") {
			continue
		}
		fmt.Fprintf(&b, "  %s: %s\n      %s\n", fd.Path, fd.Expect(), fd.Key.Help)
	}
	fmt.Fprintf(&b, "\nA role can have an engine of its own: prefill.engine and decode.engine take %s,\nand take fields that they omit from engine. encode.engine takes backend and devices.\n", strings.Join(perRole, ", "))
	return b.String()
}

func topicKeys() string {
	var b strings.Builder
	b.WriteString("Keys of dynctl top:\n")
	WriteKeys(&b, "\n%s\n", func(k tui.KeyHelp) string { return fmt.Sprintf("  %-16s %s\n", k.Keys, k.Help) })
	return b.String()
}

// WriteKeys writes the key map of the dashboard, each group of it under a heading.
func WriteKeys(b *strings.Builder, heading string, line func(tui.KeyHelp) string) {
	group := ""
	for _, k := range tui.Keys() {
		if k.Group != group {
			group = k.Group
			fmt.Fprintf(b, heading, group)
		}
		b.WriteString(line(k))
	}
}

const topicFormatting = `Answers go to standard output in the form that -o names:

  table  columns for people, numbers rounded; on a terminal fitted and with relative
         times, elsewhere parted by tabs, uncut, times in RFC 3339
  wide   the table with more columns on the right
  json   one document; keys are snake_case, carry their unit and only ever grow; what
         is unknown is null
  yaml   the same as YAML
  name   names, one to a line

dynctl top also knows csv, with exact numbers, and screen, and prints one document to a line when it
prints several. -q prints names or nothing. Progress, notes and errors go to
standard error; --progress json makes progress readable for programs.

Columns may be added on the right of a table; scripts read JSON.
`
