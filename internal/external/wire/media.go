package wire

import (
	"bytes"
	"encoding/json"
	"slices"
)

// mediaKinds are the types of the parts of a message that have an image, a sound or a video. The
// member of that name has the content.
var mediaKinds = []string{"image_url", "audio_url", "input_audio", "video_url"}

// MediaPart is a part of a message that has an image, a sound or a video.
type MediaPart struct {
	*Body
	Kind string
}

// Content is what the part has of the image, the sound or the video, as JSON.
func (p MediaPart) Content() json.RawMessage { return p.Get(p.Kind) }

// Inline reports whether the content is in the part itself. What an address leads to may change.
func (p MediaPart) Inline() bool {
	at := bytes.TrimSpace(p.Content())
	if len(at) == 0 {
		return false
	}
	if at[0] == '{' {
		inner, err := ParseBody(at)
		if err != nil {
			return false
		}
		if p.Kind == "input_audio" {
			return !IsNull(inner.Get("data"))
		}
		at = bytes.TrimSpace(inner.Get("url"))
	}
	const scheme = `"data:`
	return len(at) > len(scheme) && bytes.EqualFold(at[:len(scheme)], []byte(scheme))
}

// EachMedia calls each with the parts of a chat's messages that have media, in their order. It
// returns the messages with the parts that each says to have changed. What it cannot read of them
// is left as it is, for the server to refuse.
func EachMedia(messages json.RawMessage, each func(MediaPart) (changed bool, err error)) (json.RawMessage, error) {
	out, _, err := elements(messages, func(message *Body) (bool, error) {
		if err := message.Single("content"); err != nil {
			return false, err
		}
		content, changed, err := elements(message.Get("content"), func(part *Body) (bool, error) {
			kind := mediaKind(part)
			if kind == "" {
				return false, nil
			}
			if err := part.Single("type", kind, "uuid"); err != nil {
				return false, err
			}
			return each(MediaPart{part, kind})
		})
		if changed {
			message.Set("content", content)
		}
		return changed, err
	})
	return out, err
}

// mediaKind returns the kind of a part; "" if it has none of them.
func mediaKind(part *Body) string {
	var kind string
	if raw := part.Get("type"); !IsNull(raw) {
		if json.Unmarshal(raw, &kind) != nil || !slices.Contains(mediaKinds, kind) {
			return ""
		}
	} else if i := slices.IndexFunc(mediaKinds, func(k string) bool { return !IsNull(part.Get(k)) }); i >= 0 {
		kind = mediaKinds[i] // as vLLM reads it
	}
	if kind == "" || IsNull(part.Get(kind)) {
		return "" // a reference by uuid alone
	}
	return kind
}

// elements calls each with the objects of a list. It returns the list with those that each says to
// have changed, and whether there are any. Anything but a list has no objects.
func elements(list json.RawMessage, each func(*Body) (changed bool, err error)) (_ json.RawMessage, changed bool, _ error) {
	var all [][]byte
	var raw []json.RawMessage
	if b := bytes.TrimSpace(list); len(b) == 0 || b[0] != '[' || json.Unmarshal(b, &raw) != nil {
		return list, false, nil
	}
	for _, e := range raw {
		if object, err := ParseBody(e); err == nil {
			now, err := each(object)
			if err != nil {
				return nil, false, err
			}
			if now {
				e, changed = object.Bytes(), true
			}
		}
		all = append(all, e)
	}
	if !changed {
		return list, false, nil
	}
	return slices.Concat([]byte{'['}, bytes.Join(all, []byte{','}), []byte{']'}), true, nil
}
