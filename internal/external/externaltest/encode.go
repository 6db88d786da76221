package externaltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// mediaName is the name that a part of a message may have. No token comes of it.
var mediaName = regexp.MustCompile(`,"uuid":"[0-9a-f]{64}"`)

// shown is a part of a message with an image, a sound or a video, as vLLM reads it.
type shown struct {
	Type  string          `json:"type"`
	UUID  *string         `json:"uuid"`
	Image json.RawMessage `json:"image_url"`
	Voice json.RawMessage `json:"audio_url"`
	Sound json.RawMessage `json:"input_audio"`
	Video json.RawMessage `json:"video_url"`
}

// name is under what a server knows the embeddings of a part: as the request says, or by what it
// has read and how it was told to read it. A double reads the same at the same address.
func (p *shown) name(options []byte) string {
	if p.UUID != nil {
		return *p.UUID
	}
	content := map[string]json.RawMessage{"image_url": p.Image, "audio_url": p.Voice, "input_audio": p.Sound, "video_url": p.Video}[p.Type]
	sum := sha256.Sum256(fmt.Appendf(nil, "%s%s%s", p.Type, content, options))
	return "read-" + hex.EncodeToString(sum[:])
}

// parts returns what the messages of a chat show or play, and how many other parts they have.
func (c *call) parts() (media []shown, others int) {
	var messages []struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(c.fields["messages"], &messages) != nil {
		return nil, 0
	}
	for _, m := range messages {
		var parts []shown
		if json.Unmarshal(m.Content, &parts) != nil {
			others++
			continue
		}
		for _, p := range parts {
			if strings.HasSuffix(p.Type, "_url") || p.Type == "input_audio" {
				media = append(media, p)
			} else {
				others++
			}
		}
	}
	return media, others
}

// embeddings plays the encoder cache of vLLM. It adds what the reply of a server that encodes tells;
// ok is false if the request is over.
func (d *Double) embeddings(c *call, told map[string]json.RawMessage) (_ map[string]json.RawMessage, ok bool) {
	media, others := c.parts()
	var options []byte
	for _, name := range []string{"mm_processor_kwargs", "media_io_kwargs"} {
		options = append(options, c.fields[name]...)
	}
	f := d.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.o.Encoder {
		if len(media) != 1 || others > 0 || !bytes.Contains(c.fields["messages"], []byte(`"role":"user"`)) || string(c.fields["max_tokens"]) != "1" || string(c.fields["stream"]) == "true" {
			f.wrong = append(f.wrong, fmt.Sprintf("a server that encodes got %.300s", c.body))
		}
		return d.encoded(media, options), true
	}
	var second struct {
		Prefill bool `json:"do_remote_prefill"`
	}
	if json.Unmarshal(c.fields["kv_transfer_params"], &second) == nil && second.Prefill { // it gets the whole prompt
		media = nil
	}
	var params map[string]json.RawMessage
	if raw := c.fields["ec_transfer_params"]; raw != nil && json.Unmarshal(raw, &params) != nil {
		c.refuse("ec_transfer_params: not an object")
		return nil, false
	}
	meant := map[string]bool{}
	for i := range media {
		name := media[i].name(options)
		meant[name] = true
		want, there := f.embeddings[name]
		switch got := params[name]; {
		case there && bytes.Equal(got, want):
			f.fetched++
		case got != nil:
			f.wrong = append(f.wrong, fmt.Sprintf("embeddings %s told as %s became %s", name, want, got))
		default:
			f.seen++
		}
	}
	for name := range params {
		if !meant[name] {
			f.wrong = append(f.wrong, "embeddings of nothing in the prompt: "+name)
		}
	}
	return told, true
}

// encoded computes embeddings and returns what the reply tells of them. It needs the fabric's mu.
// Members, their order and their spelling are what is easily lost.
func (d *Double) encoded(media []shown, options []byte) map[string]json.RawMessage {
	var all []string
	for i := range media {
		name := media[i].name(options)
		if d.fabric.embeddings[name] = nil; d.o.Store {
			continue
		}
		d.fabric.counted++
		told := fmt.Sprintf(`{"peer_host": "localhost", "peer_port":5700,"size_bytes":9007199254740993,"nixl_agent_metadata_b64":"bWV0YQ==","n":%d,"future":{"a":"\u00e9","b":1e2}}`, d.fabric.counted)
		d.fabric.embeddings[name] = json.RawMessage(told)
		all = append(all, fmt.Sprintf("%q: %s", name, told))
	}
	if all == nil {
		return nil
	}
	return map[string]json.RawMessage{"ec_transfer_params": json.RawMessage("{" + strings.Join(all, ",") + "}")}
}

// Encoded counts what servers with a prompt got the embeddings of from other servers, and what they
// encoded themselves.
func (f *Fabric) Encoded() (elsewhere, there int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fetched, f.seen
}
