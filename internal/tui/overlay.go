package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/tui/draw"
)

// overlay lies over the screen and takes the keys: a question, a text, a line being typed.
type overlay interface {
	// press takes a key.
	press(k tea.KeyMsg) reply
	// wheel takes lines of the mouse wheel, down or, negative, up.
	wheel(lines int)
	// size is told the room between header and footer.
	size(width, height int)
	// draw paints over that room.
	draw(a draw.Area)
	// line is the overlay in one line, with its keys; empty if it needs more.
	line() (text, keys string)
}

// reply is the reaction of an overlay to a key.
type reply struct {
	close bool           // the overlay is done
	pass  bool           // the key map has the key instead
	then  func() tea.Cmd // run once the overlay is closed, if it is; nil: nothing
}

// stack holds the overlays; the last lies on top and takes the keys.
type stack []overlay

// top is the overlay that takes the keys; nil: none.
func (s stack) top() overlay {
	if len(s) == 0 {
		return nil
	}
	return s[len(s)-1]
}

// push lays an overlay over the others.
func (s *stack) push(o overlay) { *s = append(*s, o) }

// press gives a key to the topmost overlay; ok is false if the key map has it.
func (s *stack) press(k tea.KeyMsg) (cmd tea.Cmd, ok bool) {
	o := s.top()
	if o == nil {
		return nil, false
	}
	r := o.press(k)
	if r.close {
		*s = (*s)[:len(*s)-1]
	}
	if r.then != nil {
		cmd = r.then()
	}
	return cmd, !r.pass
}
