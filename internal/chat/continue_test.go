package chat_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
)

// TestContinueFinalMessage: the text ends where the last message does, blanks included unless
// the template cuts them off, as with continue_final_message of Transformers.
func TestContinueFinalMessage(t *testing.T) {
	const (
		trims = `{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}`
		parts = `{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}</>{% endfor %}`
		hides = `{% for m in messages %}{% if m.role == "user" %}{{ m.content }}{% endif %}{% endfor %}`
		cuts  = `{% for m in messages %}{{ m.content.split("</think>")[-1] }}</>{% endfor %}`
	)
	user := `{"role":"user","content":"say CONTINUE_FINAL_MESSAGE_TAG x"}`
	for _, tc := range []struct{ name, template, last, want, err string }{
		{"open", chatML, `{"role":"assistant","content":"Sure, "}`, "Sure, ", ""},
		{"blanks that are cut off", trims, `{"role":"assistant","content":"Sure, \n"}`, "Sure,", ""},
		{"last part", parts, `{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "(a)(b", ""},
		{"joined parts", chatML, `{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "a\nb", ""},
		{"empty", chatML, `{"role":"assistant","content":""}`, "", ""},
		{"no text", chatML, `{"role":"assistant","content":null}`, "", "no text"},
		{"hidden", hides, `{"role":"assistant","content":"Sure"}`, "", "does not show"},
		{"cut", cuts, `{"role":"assistant","content":"a</think>b"}`, "", "does not show"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := withTemplate(t, tc.template).Render(t.Context(), chat.Conversation{Messages: messages(user, tc.last), ContinueFinalMessage: true, MostTokens: 1000})
			if tc.err != "" {
				if !errors.Is(err, chat.ErrMessages) || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%q, %v; want an error with %q", got, err, tc.err)
				}
				return
			}
			if want := "<user>say CONTINUE_FINAL_MESSAGE_TAG x</><assistant>" + tc.want; err != nil || got != want {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
	if _, err := withTemplate(t, chatML).Render(t.Context(), chat.Conversation{ContinueFinalMessage: true, MostTokens: 1000}); !errors.Is(err, chat.ErrMessages) {
		t.Errorf("no messages: %v", err)
	}
}
