package frontend

import (
	"context"
	"sync"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// contents is the content of the images of requests in flight, for workers to fetch. The
// same content of several requests is kept once.
type contents struct {
	limit int64 // bytes

	mu    sync.Mutex
	bytes int64
	byID  map[string]*content
}

type content struct {
	data []byte
	refs int
}

// maxContents bounds the content of all requests in flight, in bytes.
const maxContents = 2 << 30

func newContents() *contents { return &contents{limit: maxContents, byID: map[string]*content{}} }

// add keeps content until release is called, once. It returns false if there is no room.
func (c *contents) add(data []byte) (id string, release func(), ok bool) {
	id = protocol.ContentID(data)
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.byID[id]
	if k == nil {
		if c.bytes+int64(len(data)) > c.limit {
			return "", nil, false
		}
		k = &content{data: data}
		c.byID[id] = k
		c.bytes += int64(len(data))
	}
	k.refs++
	return id, func() { c.release(id) }, true
}

func (c *contents) release(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.byID[id]
	if k.refs--; k.refs == 0 {
		delete(c.byID, id)
		c.bytes -= int64(len(k.data))
	}
}

func (c *contents) get(id string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.byID[id]
	if k == nil {
		return nil, false
	}
	return k.data, true
}

// contentChunk is how much of content goes in one message.
const contentChunk = 1 << 20

// sendContent answers workers that fetch the content of an image.
func (f *Frontend) sendContent(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.MediaRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	data, ok := f.contents.get(req.ID)
	if !ok {
		return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "no request in flight has this content"}
	}
	for from := 0; from < len(data); from += contentChunk {
		if err := send(protocol.MediaChunk{Data: data[from:min(from+contentChunk, len(data))]}); err != nil {
			return err
		}
	}
	return nil
}
