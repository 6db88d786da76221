package tui

import (
	"context"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// simulatedMsg is what an order would have done with the load of the last hour.
type simulatedMsg struct {
	order client.Action
	text  string
	err   error
}

// simulateTimeout limits how long a simulation may take.
const simulateTimeout = time.Minute

const whatIfKeys = "   w what if"

// asks reports whether a simulation can tell what an order would do.
func (m *model) asks(order client.Action) bool {
	return m.opts.WhatIf != nil && (order.Kind == client.ActScale || order.Kind == client.ActSet)
}

// simulate has an order simulated.
func (m *model) simulate(order client.Action) tea.Cmd {
	m.say(draw.Plain, "simulating "+order.Text()+" ...")
	return m.cmds.do(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, simulateTimeout)
		defer cancel()
		text, err := m.opts.WhatIf(ctx, order)
		return simulatedMsg{order, text, err}
	})
}

// simulated shows what an order would have done.
func (m *model) simulated(msg simulatedMsg) {
	if msg.err != nil {
		m.say(draw.Bad, "what if: "+msg.err.Error())
		return
	}
	var lines [][]draw.Span
	for line := range strings.SplitSeq(msg.text, "\n") {
		lines = append(lines, []draw.Span{draw.Plain.Text(line)})
	}
	m.say(draw.Plain, "simulated: nothing was changed")
	m.over.push(&textBox{title: "what if: " + msg.order.Text(), lines: func() [][]draw.Span { return lines }, glyphs: m.shown.Glyphs})
}
