package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// MaxContent bounds the content of one part, in bytes, whatever a frontend allows.
const MaxContent = 1 << 30

// Content fetches the content of a part from its frontend.
func (f *Finder) Content(ctx context.Context, part *protocol.MediaPart) ([]byte, error) {
	src := &part.Source
	if src.Size <= 0 || src.Size > MaxContent {
		return nil, &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: fmt.Sprintf("an image of %d bytes", src.Size)}
	}
	all := f.frontends.All()
	at := slices.IndexFunc(all, func(i cluster.Instance) bool { return i.InstanceID == src.Frontend })
	if at < 0 {
		return nil, fmt.Errorf("the frontend %s, which has the image, is gone", src.Frontend)
	}
	s, err := f.frontends.Call(ctx, all[at], src.ID, nil, protocol.MediaRequest{ID: src.ID})
	if err != nil {
		return nil, fmt.Errorf("fetch the image: %w", err)
	}
	defer s.Close()
	content := make([]byte, 0, src.Size)
	for {
		var chunk protocol.MediaChunk
		if err := s.Recv(ctx, &chunk); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("fetch the image: %w", err)
		}
		if int64(len(content)+len(chunk.Data)) > src.Size {
			return nil, fmt.Errorf("fetch the image: more than its %d bytes came", src.Size)
		}
		content = append(content, chunk.Data...)
	}
	if int64(len(content)) != src.Size || protocol.ContentID(content) != src.ID {
		return nil, fmt.Errorf("fetch the image: %d of %d bytes came, or others than it has", len(content), src.Size)
	}
	return content, nil
}
