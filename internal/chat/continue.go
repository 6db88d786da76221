package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/jinja"
)

// endMark stands at the end of a message that is to be continued, until the conversation is
// rendered. The blank tells whether the template has cut blanks off, as in Transformers, by
// which templates are tested.
const endMark = "CONTINUE_FINAL_MESSAGE_TAG "

// openEnd puts endMark at the end of the last message and returns the text before it.
func (c *conversation) openEnd() (text string, _ error) {
	if len(c.messages) == 0 {
		return "", fmt.Errorf("%w: there is no message to continue", ErrMessages)
	}
	last := copyDict(c.messages[len(c.messages)-1])
	c.messages = append(slices.Clone(c.messages[:len(c.messages)-1]), last)
	switch content := get(last, "content").(type) {
	case string:
		last.Set("content", content+endMark)
		return content, nil
	case *jinja.List:
		parts := make([]jinja.Value, content.Len())
		for i := range parts {
			parts[i] = content.At(i)
		}
		for i, part := range slices.Backward(parts) {
			d, _ := part.(*jinja.Dict)
			if d == nil {
				continue
			}
			if text, ok := get(d, "text").(string); ok {
				d = copyDict(d)
				d.Set("text", text+endMark)
				parts[i] = d
				last.Set("content", jinja.NewList(parts...))
				return text, nil
			}
		}
	}
	return "", fmt.Errorf("%w: the last message has no text that could be continued", ErrMessages)
}

// cutAtEnd returns a rendered conversation up to endMark, which stands behind text.
func cutAtEnd(rendered, text string) (string, error) {
	at := strings.LastIndex(rendered, strings.TrimSpace(endMark))
	if at < 0 || !strings.Contains(rendered, strings.TrimSpace(text)) {
		return "", fmt.Errorf("%w: the chat template does not show the last message as it is, so it cannot be continued", ErrMessages)
	}
	if strings.HasPrefix(rendered[at:], endMark) {
		return rendered[:at], nil
	}
	return strings.TrimRight(rendered[:at], " \t\n\r\v\f"), nil
}
