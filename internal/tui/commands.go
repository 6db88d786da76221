package tui

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/layout"
)

// command is one word of the command line. errUsage from run stands for its own usage.
type command struct {
	name, args string // as help shows them
	help       string
	run        func(m *model, args []string) (tea.Cmd, error)
	complete   func(m *model) []string // what its first argument can be; nil: anything
}

var errUsage = errors.New("wrong arguments")

// commandLine is every command, in the order of its help.
type commandLine []command

func commands(specs []paneSpec) commandLine {
	var out commandLine
	for _, a := range actions() {
		out = append(out, a.command())
	}
	leave := func(*model, []string) (tea.Cmd, error) { return tea.Quit, nil }
	views := func(*model) []string { return paneNames(specs) }
	out = append(out,
		command{"sort", "<column> [desc]", "order the focused pane", runSort, sortNames},
		command{"filter", "[text]", "filter the focused pane; nothing clears", runFilter, nil},
		command{"view", "<pane>", "choose a pane by name", runView, views},
	)
	for i, s := range specs {
		if s.slot == layout.Cover {
			out = append(out, command{s.name, "", s.about, func(m *model, _ []string) (tea.Cmd, error) { m.choose(i); return nil, nil }, nil})
		}
	}
	return append(out,
		command{"inspect", "<worker or node>", "show one of them", runInspect, ownerNames},
		command{"logs", "<worker or node>", "show the log of one of them", runLogs, ownerNames},
		command{"interval", "<duration>", "interval between samples", runInterval, nil},
		command{"seek", "<duration>", "wind a replay, back with -", runSeek, nil},
		command{"speed", "<number>", "how fast a replay is played", runSpeed, nil},
		command{"help", "", "keys of this view", func(m *model, _ []string) (tea.Cmd, error) { m.showHelp(); return nil, nil }, nil},
		command{"q", "", "leave", leave, nil},
		command{"quit", "", "leave", leave, nil},
	)
}

// run carries out a typed line and says what is wrong with it.
func (l commandLine) run(m *model, line string) tea.Cmd {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	var known []string
	for _, c := range l {
		if c.name == words[0] {
			cmd, err := c.run(m, words[1:])
			if errors.Is(err, errUsage) {
				err = fmt.Errorf("%w: :%s %s", errUsage, c.name, c.args)
			}
			if err != nil {
				m.say(draw.Warn, ":"+c.name+": "+err.Error())
			}
			return cmd
		}
		if c.args != "" || c.name == "q" {
			known = append(known, ":"+c.name)
		}
	}
	m.say(draw.Warn, fmt.Sprintf(":%s: no such command; there are %s", words[0], strings.Join(known, " ")))
	return nil
}

func runSort(m *model, args []string) (tea.Cmd, error) {
	if why := m.panes.cannotSort(); why != "" {
		return nil, errors.New(why)
	}
	if len(args) < 1 || len(args) > 2 || (len(args) == 2 && args[1] != "desc" && args[1] != "asc") {
		return nil, errUsage
	}
	rows := m.panes.rows()
	ids := rows.SortKeys()
	for i, id := range ids {
		if id == strings.ToLower(args[0]) {
			rows.SortBy(i)
			if len(args) == 2 {
				rows.Descend(args[1] == "desc")
			}
			return nil, nil
		}
	}
	return nil, fmt.Errorf("no column %q in %s; there are %s", args[0], m.panes.focused().title, strings.Join(ids, ", "))
}

func runFilter(m *model, args []string) (tea.Cmd, error) {
	if why := m.panes.cannotFilter(); why != "" {
		return nil, errors.New(why)
	}
	m.panes.rows().SetFilter(strings.Join(args, " "))
	return nil, nil
}

func runView(m *model, args []string) (tea.Cmd, error) {
	if len(args) != 1 {
		return nil, errUsage
	}
	i, ok := m.panes.named(args[0])
	if !ok {
		return nil, fmt.Errorf("no pane %q; there are %s", args[0], strings.Join(paneNames(m.panes.specs), ", "))
	}
	m.choose(i)
	return nil, nil
}

func runInspect(m *model, args []string) (tea.Cmd, error) {
	if len(args) != 1 {
		return nil, errUsage
	}
	s, ok := detail.Of(m.shown, args[0])
	if !ok {
		return nil, errors.New(m.shown.NoWorker(args[0]))
	}
	m.open(s)
	return nil, nil
}

func runInterval(m *model, args []string) (tea.Cmd, error) {
	if m.feed.play != nil {
		return nil, errors.New("a recording has its own interval; :speed plays it faster")
	}
	if len(args) != 1 {
		return nil, errUsage
	}
	steps := intervals()
	d, err := time.ParseDuration(args[0])
	if lo, hi := steps[0], steps[len(steps)-1]; err != nil || d < lo || d > hi {
		return nil, fmt.Errorf("%q is not a duration between %s and %s", args[0], cells.Interval(lo), cells.Interval(hi))
	}
	m.feed.interval = d
	return m.cmds.setInterval(m.source, d), nil
}

func runSeek(m *model, args []string) (tea.Cmd, error) {
	if why := m.feed.play.cannotWind(); why != "" {
		return nil, errors.New(why)
	}
	if len(args) != 1 {
		return nil, errUsage
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return nil, fmt.Errorf("%q is not a duration like 90s or -2m", args[0])
	}
	m.feed.play.player.Seek(d)
	return nil, nil
}

func runSpeed(m *model, args []string) (tea.Cmd, error) {
	if why := m.feed.play.cannotWind(); why != "" {
		return nil, errors.New(why)
	}
	if len(args) != 1 {
		return nil, errUsage
	}
	v, err := strconv.ParseFloat(args[0], 64)
	if err != nil || !(v > 0) || v > client.MaxSpeed {
		return nil, fmt.Errorf("%q is not a number above 0, up to %d", args[0], client.MaxSpeed)
	}
	m.feed.play.setSpeed(v)
	return nil, nil
}
