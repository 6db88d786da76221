package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/dynctl/dynctl/internal/openai"
)

// done is the data of the last event of a stream.
const done = "[DONE]"

// errStop ends the reading of a stream.
var errStop = errors.New("stop")

// Stream sends a request and calls each with the data of every event of its answer, without
// the end mark. It returns whether the end mark came, or else the stream ended where a
// connection would. Comments and events without data count as signs of life only. The end of
// ctx closes the connection, which cancels the request at the server.
func (c *Client) Stream(ctx context.Context, path string, header http.Header, body []byte, each func(data []byte) error) (marked bool, err error) {
	ctx, awake, cancel := c.watch(ctx, path)
	defer cancel()
	resp, err := c.do(ctx, http.MethodPost, path, header, body)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "text/event-stream" {
		return false, fmt.Errorf("%s: the answer is %q, no stream of events", path, tidy(resp.Header.Get("Content-Type"), ""))
	}
	err = readEvents(&heard{resp.Body, awake}, each)
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errStop):
		finish(resp.Body)
		return true, nil
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil && cause != nil:
		return false, cause
	}
	return false, err
}

// finishTime is how long the end of a body may follow the end of its stream, for its connection
// to be used again.
const finishTime = time.Second

// finish reads the end of a body, without which its connection would be closed.
func finish(body io.ReadCloser) {
	late := time.AfterFunc(finishTime, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(body, maxError))
}

// readEvents calls each with the data of events. It returns errStop after the end mark, and
// io.EOF where the stream ends without one.
func readEvents(r io.Reader, each func(data []byte) error) error {
	events := openai.NewEvents(r)
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return io.EOF
		case err != nil:
			return fmt.Errorf("read the stream: %w", err)
		case e.Comment || e.Data == "":
			continue
		case e.Data == done:
			return errStop
		}
		if err := each([]byte(e.Data)); err != nil {
			return err
		}
	}
}
