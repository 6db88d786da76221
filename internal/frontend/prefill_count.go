package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
)

// countWait bounds the wait for what a prefill server says of a prompt that it has computed
// beside the decode server, which may be quicker to answer.
const countWait = 250 * time.Millisecond

// prefillCount is what a prefill server tells of the prompt of an answer that comes from another server.
// That one has the whole prompt as KV, and says that all of it was cached.
type prefillCount struct {
	hop    *firstHop
	waited bool
}

// cached returns how many tokens of the prompt the prefill server found in its cache. It waits
// for that once, and not for long.
func (t *prefillCount) cached(ctx context.Context) (tokens int, known bool) {
	if t.hop.followed != nil && !t.waited {
		t.waited = true
		late := time.NewTimer(countWait)
		defer late.Stop()
		select {
		case <-t.hop.followed:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	if t.hop.followed != nil {
		select {
		case <-t.hop.followed:
		default:
			return 0, false
		}
	}
	return t.hop.cached, t.hop.counted
}

// correct puts the prefill server's count in the place of the decode server's, wherever an output
// has one; where nobody knows, there is none.
func (t *prefillCount) correct(ctx context.Context, out *protocol.EngineOutput) {
	raw := out.Raw != nil && bytes.Contains(out.Raw, []byte(`"usage"`))
	if !raw && out.Usage == nil {
		return
	}
	n, known := t.cached(ctx)
	if out.Usage != nil {
		u := *out.Usage
		u.CachedTokens = n
		out.Usage = &u
	}
	if raw {
		out.Raw = withCached(out.Raw, n, known)
	}
}

// withCached returns an answer whose usage, if it has one, counts n cached tokens, or says nothing
// of them if they are not known.
func withCached(answer json.RawMessage, n int, known bool) json.RawMessage {
	usage := member(answer, "usage")
	if len(usage) == 0 || usage[0] != '{' {
		return answer
	}
	details := member(usage, "prompt_tokens_details")
	if len(details) == 0 || details[0] != '{' {
		if !known {
			return answer
		}
		details = json.RawMessage("{}")
	}
	value := json.RawMessage("null")
	if known {
		value = strconv.AppendInt(nil, int64(n), 10)
	}
	return withMember(answer, "usage", withMember(usage, "prompt_tokens_details", withMember(details, "cached_tokens", value)))
}

// member returns a member of an object, nil if there is none.
func member(object json.RawMessage, name string) (found json.RawMessage) {
	err := members(object, func(key string, v json.RawMessage) error {
		if key == name {
			found = v
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return found
}
