package tui

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
)

// command is one word of the command line.
type command struct {
	name string
	args string // as help shows them
	help string
	run  func(m *model, args []string) (tea.Cmd, error)
}

// commands is the command line, in the order of its help.
func commands() []command {
	return []command{
		{"drain", "<worker> [deadline]", "drain a worker, after a question", (*model).runDrain},
		{"resume", "<worker>", "resume a worker, after a question", (*model).runResume},
		{"sort", "<column> [desc]", "order the focused pane", (*model).runSort},
		{"filter", "[text]", "filter the focused pane; nothing clears", (*model).runFilter},
		{"view", "<pane>", "choose a pane by name", (*model).runView},
		{"nodes", "", "nodes, with their devices", func(m *model, _ []string) (tea.Cmd, error) { return m.runView([]string{"nodes"}) }},
		{"inspect", "<worker or node>", "look at one of them", (*model).runInspect},
		{"interval", "<duration>", "how often to look", (*model).runInterval},
		{"seek", "<duration>", "wind a replay, back with -", (*model).runSeek},
		{"speed", "<number>", "how fast a replay is played", (*model).runSpeed},
		{"help", "", "keys of this view", func(m *model, _ []string) (tea.Cmd, error) { m.showHelp(); return nil, nil }},
		{"q", "", "leave", func(*model, []string) (tea.Cmd, error) { return tea.Quit, nil }},
		{"quit", "", "leave", func(*model, []string) (tea.Cmd, error) { return tea.Quit, nil }},
	}
}

// commandNames lists the commands that do something, as ":drain :resume ...".
func commandNames() string {
	var names []string
	for _, c := range commands() {
		if c.args != "" || c.name == "q" {
			names = append(names, ":"+c.name)
		}
	}
	return strings.Join(names, " ")
}

// runCommand carries out a typed line and says what is wrong with it.
func (m *model) runCommand(line string) tea.Cmd {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	for _, c := range m.words {
		if c.name != words[0] {
			continue
		}
		cmd, err := c.run(m, words[1:])
		if err != nil {
			m.say(draw.Warn, ":"+c.name+": "+err.Error())
		}
		return cmd
	}
	m.say(draw.Warn, fmt.Sprintf(":%s: no such command; there are %s", words[0], commandNames()))
	return nil
}

var errUsage = errors.New("wrong arguments")

func usage(name string) error {
	for _, c := range commands() {
		if c.name == name {
			return fmt.Errorf("%w: :%s %s", errUsage, c.name, c.args)
		}
	}
	return errUsage
}

func (m *model) runDrain(args []string) (tea.Cmd, error) {
	if len(args) < 1 || len(args) > 2 {
		return nil, usage("drain")
	}
	a := client.Action{Kind: client.ActDrain, Worker: args[0]}
	if len(args) == 2 {
		d, err := parseDeadline(args[1])
		if err != nil {
			return nil, err
		}
		a.Deadline = d
	}
	return nil, m.openIfCan(a)
}

func (m *model) runResume(args []string) (tea.Cmd, error) {
	if len(args) != 1 {
		return nil, usage("resume")
	}
	return nil, m.openIfCan(client.Action{Kind: client.ActResume, Worker: args[0]})
}

func (m *model) openIfCan(a client.Action) error {
	if why := m.stillCannot(a); why != "" {
		return errors.New(why)
	}
	m.open(a)
	return nil
}

func (m *model) runSort(args []string) (tea.Cmd, error) {
	if why := m.cannotSort(); why != "" {
		return nil, errors.New(why)
	}
	if len(args) < 1 || len(args) > 2 || (len(args) == 2 && args[1] != "desc" && args[1] != "asc") {
		return nil, usage("sort")
	}
	src, _ := m.rowsOf(m.focus.pane)
	var ids []string
	for i, k := range src.Keys {
		if k.Id == strings.ToLower(args[0]) {
			m.sortBy(i)
			if len(args) == 2 {
				m.lists[m.focus.pane].Desc = args[1] == "desc"
				m.rebuild(m.focus.pane)
			}
			return nil, nil
		}
		ids = append(ids, k.Id)
	}
	return nil, fmt.Errorf("no column %q in %s; there are %s", args[0], m.focus.pane.info().title, strings.Join(ids, ", "))
}

func (m *model) runFilter(args []string) (tea.Cmd, error) {
	if why := m.cannotFilter(); why != "" {
		return nil, errors.New(why)
	}
	m.setFilter(strings.Join(args, " "))
	return nil, nil
}

func (m *model) runView(args []string) (tea.Cmd, error) {
	if len(args) != 1 {
		return nil, usage("view")
	}
	p, ok := paneNamed(args[0])
	if !ok {
		return nil, fmt.Errorf("no pane %q; there are %s", args[0], strings.Join(Views(), ", "))
	}
	m.detail = detail{}
	m.setFocus(p)
	return nil, nil
}

func (m *model) runInspect(args []string) (tea.Cmd, error) {
	if len(args) != 1 {
		return nil, usage("inspect")
	}
	d, ok := m.ownerDetail(args[0])
	if !ok {
		return nil, errors.New(m.noWorker(args[0]))
	}
	m.detail = d
	return nil, nil
}

func (m *model) runInterval(args []string) (tea.Cmd, error) {
	if m.play != nil {
		return nil, errors.New("a recording has its own interval; :speed plays it faster")
	}
	if len(args) != 1 {
		return nil, usage("interval")
	}
	steps := intervals()
	d, err := time.ParseDuration(args[0])
	if lo, hi := steps[0], steps[len(steps)-1]; err != nil || d < lo || d > hi {
		return nil, fmt.Errorf("%q is not a duration between %s and %s", args[0], cells.Interval(lo), cells.Interval(hi))
	}
	return m.setInterval(d), nil
}

// complete extends the last word as far as it is certain.
func (m *model) complete(text string) string {
	words := strings.Split(text, " ")
	last := words[len(words)-1]
	var options []string
	switch {
	case len(words) == 1:
		for _, c := range m.words {
			options = append(options, c.name)
		}
	case len(words) > 2:
		return text
	case words[0] == "drain" || words[0] == "resume" || words[0] == "inspect":
		for i := range m.snap.Workers {
			options = append(options, m.snap.Workers[i].Name)
		}
		if words[0] == "inspect" {
			for i := range m.snap.Nodes {
				options = append(options, m.snap.Nodes[i].Name)
			}
		}
	case words[0] == "view":
		options = Views()
	case words[0] == "sort":
		if src, ok := m.rowsOf(m.focus.pane); ok {
			for _, k := range src.Keys {
				options = append(options, k.Id)
			}
		}
	}
	match := options[:0:0]
	for _, o := range options {
		if strings.HasPrefix(o, last) {
			match = append(match, o)
		}
	}
	if len(match) == 0 {
		return text
	}
	sort.Strings(match)
	common := match[0]
	for common != "" && !strings.HasPrefix(match[len(match)-1], common) {
		common = cells.DropLast(common)
	}
	words[len(words)-1] = common
	out := strings.Join(words, " ")
	if len(match) == 1 && len(words) == 1 {
		out += " "
	}
	return out
}
