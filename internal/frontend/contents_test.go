package frontend

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Content is kept once, while any request has it, within a limit.
func TestContents(t *testing.T) {
	c := newContents()
	c.limit = 10
	id, one, ok := c.add([]byte("123456"))
	if !ok || id != protocol.ContentID([]byte("123456")) {
		t.Fatal(id, ok)
	}
	if same, two, ok := c.add([]byte("123456")); !ok || same != id || c.bytes != 6 {
		t.Errorf("the same again: %v, %d bytes", ok, c.bytes)
	} else {
		two()
	}
	if data, ok := c.get(id); !ok || string(data) != "123456" {
		t.Errorf("%q %v", data, ok)
	}
	if _, _, ok := c.add([]byte("12345")); ok {
		t.Error("more than the limit")
	}
	if _, all, ok := c.add([]byte("1234")); !ok || c.bytes != 10 {
		t.Errorf("up to the limit: %v, %d bytes", ok, c.bytes)
	} else {
		all()
	}
	one()
	if _, ok := c.get(id); ok || c.bytes != 0 || len(c.byID) != 0 {
		t.Errorf("content without a request: %d bytes", c.bytes)
	}
}

// A worker gets content in pieces, in order, and an error for what no request has.
func TestSendContent(t *testing.T) {
	f := &Frontend{contents: newContents()}
	data := bytes.Repeat([]byte("0123456789"), contentChunk/5+3)
	id, release, _ := f.contents.add(data)
	defer release()
	ask := func(id string) (got []byte, chunks int, err error) {
		body, err := protocol.Marshal(protocol.MediaRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		err = f.sendContent(t.Context(), &requestplane.Request{Body: body}, func(item any) error {
			got, chunks = append(got, item.(protocol.MediaChunk).Data...), chunks+1
			return nil
		})
		return got, chunks, err
	}
	if got, n, err := ask(id); err != nil || n != 3 || !bytes.Equal(got, data) {
		t.Errorf("%d bytes in %d pieces, %v", len(got), n, err)
	}
	var remote *requestplane.RemoteError
	if _, _, err := ask("other"); !errors.As(err, &remote) || remote.Kind != requestplane.KindUnavailable {
		t.Errorf("unknown content: %v", err)
	}
}
