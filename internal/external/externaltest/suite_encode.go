package externaltest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Parts of messages that show or play something.
const (
	Picture = `{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD","detail":"low"}}`
	Linked  = `{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`
	Sound   = `{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}}`
	Film    = `{"type":"video_url","video_url":{"url":"data:video/mp4;base64,QUJD"}}`
	Voice   = `{"type":"audio_url","audio_url":{"url":"data:audio/wav;base64,QUJD"}}`
	words   = `{"type":"text","text":"What is that?"}`
)

// Show returns the body of a chat whose message has parts.
func Show(parts ...string) string {
	return `{"messages":[{"role":"system","content":"look"},{"role":"user","content":[` + strings.Join(parts, ",") + `]}],"max_tokens":4}`
}

// encode checks that media are encoded by one server for another one.
func (s Setup) encode(t *testing.T) {
	if !s.Encodes {
		_, e := s.start(t, Options{}, nil)
		if _, ok := e.(external.Encoder); ok {
			t.Error("it encodes")
		}
		return
	}
	t.Run("items", s.encodeItems)
	t.Run("alone", s.encodeAlone)
	t.Run("a store", s.encodeStore)
	t.Run("failures", s.encodeFailures)
	for _, connector := range s.Connectors {
		t.Run(connector, func(t *testing.T) { s.encodeExchange(t, connector) })
	}
}

func (s Setup) encodeItems(t *testing.T) {
	_, e := s.start(t, Options{}, nil)
	enc := e.(external.Encoder)
	items := func(r *external.Request) []external.MediaItem {
		t.Helper()
		got, err := enc.Items(r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, test := range []struct {
		body string
		n    int
	}{
		{Show(words), 0}, {`{"messages":[{"role":"user","content":"an image_url"}]}`, 0}, {`{"prompt":"x"}`, 0}, {`{"messages":"x"}`, 0}, {`{"messages":[7,{"content":[7,"x",{"type":7}]}]}`, 0},
		{Show(Picture), 1}, {Show(words, Picture, words), 1}, {Show(Picture, Picture), 1}, {Show(Picture, Linked, Sound, Film, Voice), 5},
		{Show(`{"image_url":{"url":"data:image/png;base64,QUJD"}}`), 1}, {Show(`{"type":"image_url","image_url":"data:image/png;base64,QUJD"}`), 1},
		{Show(`{"type":"image_url","image_url":null,"uuid":"what was sent before"}`), 0}, {Show(`{"type":"image_embeds","image_embeds":"QUJD"}`), 0},
	} {
		if got := items(AskBody(protocol.APIChat, test.body)); len(got) != test.n {
			t.Errorf("%s: %d items, want %d", test.body, len(got), test.n)
		}
	}
	if got := items(AskBody(protocol.APICompletions, Show(Picture))); len(got) != 0 {
		t.Errorf("%d items of a text completion", len(got))
	}
	if got := items(Ask(Prompt(4), 4)); len(got) != 0 {
		t.Errorf("%d items of tokens", len(got))
	}
	// The key is that of the content and of how it is read.
	var keys [][32]byte
	for _, body := range []string{
		Show(Picture), Show(Linked), Show(Sound), Show(strings.Replace(Picture, "QUJD", "QUJE", 1)), strings.Replace(Show(Picture), `"max_tokens"`, `"mm_processor_kwargs":{"min_pixels":9},"max_tokens"`, 1),
		strings.Replace(Show(Picture), `"max_tokens"`, `"media_io_kwargs":{"image":{"mode":"L"}},"max_tokens"`, 1),
	} {
		key := items(AskBody(protocol.APIChat, body))[0].Key
		if slices.Contains(keys, key) {
			t.Errorf("%s has the key of another item", body)
		}
		keys = append(keys, key)
	}
	if again := items(AskBody(protocol.APIChat, Show(words, Picture)))[0]; again.Key != keys[0] {
		t.Error("the same content has another key beside other parts")
	}
	for _, body := range []string{
		`{"messages":[],"messages":[]}`, `{"messages":[{"content":[],"Content":[` + Picture + `]}]}`, Show(strings.Replace(Picture, `"image_url":{`, `"image_url":"https://evil","image_url":{`, 1)), Show(strings.Replace(Picture, `{"type"`, `{"UUID":"evil","uuid":"x","type"`, 1)),
	} {
		_, err := enc.Items(AskBody(protocol.APIChat, body))
		Kind(t, err, requestplane.KindInvalidArgument)
	}
}

// encoded has the items of a request encoded, and adds what the request's server is told.
func encoded(t *testing.T, e external.Engine, r *external.Request) {
	t.Helper()
	enc := e.(external.Encoder)
	items, err := enc.Items(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		told, err := enc.Encode(t.Context(), AskBody(protocol.APIChat, string(item.Body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Encoded = append(r.Encoded, told)
	}
}

// counts checks how many media were encoded elsewhere, and how many there.
func (f *Fabric) counts(t *testing.T, elsewhere, there int) {
	t.Helper()
	if a, b := f.Encoded(); a != elsewhere || b != there {
		t.Errorf("%d embeddings from other servers and %d of its own, want %d and %d", a, b, elsewhere, there)
	}
	if wrong := f.Wrong(); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
}

func (s Setup) encodeAlone(t *testing.T) {
	fabric := NewFabric()
	d, e := s.start(t, Options{Fabric: fabric, Encoder: true}, nil)
	reader, own := s.start(t, Options{Fabric: fabric}, nil)
	body := strings.Replace(Show(words, Picture, Linked, Picture, Sound), `"max_tokens"`, `"mm_processor_kwargs":{"min_pixels":9},`+forbidden+`,"max_tokens"`, 1)
	want := Text(Continue(Hash(512), PromptOf(messagesOf(t, body)), 4))
	for _, stream := range []string{"", `,"stream":true`} {
		r := AskBody(protocol.APIChat, strings.TrimSuffix(body, "}")+stream+"}")
		encoded(t, e, r)
		if got, _ := readRaw(t, collect(t, own, r).Raw); got != want {
			t.Errorf("text %q, want %q", got, want)
		}
	}
	fabric.counts(t, 8, 0)
	for _, seen := range append(d.Seen(), reader.Seen()...) {
		if text := string(seen.Body); strings.Contains(text, "evil") || strings.Contains(text, `example.com/a.png"},"uuid"`) {
			t.Errorf("a server got %s", text)
		}
	}
	if n := len(d.Seen()); n != 6 {
		t.Errorf("%d items were encoded, want 3 twice", n)
	}
	// Without a word of others, the body is as it was.
	r := AskBody(protocol.APIChat, Show(Picture))
	collect(t, own, r)
	fabric.counts(t, 8, 1)
	if sent := string(reader.Last(t).Body); strings.Contains(sent, "uuid") || !strings.Contains(sent, Picture) {
		t.Errorf("the server got %s", sent)
	}
}

func (s Setup) encodeStore(t *testing.T) {
	fabric := NewFabric()
	_, e := s.start(t, Options{Fabric: fabric, Encoder: true, Store: true}, nil)
	reader, own := s.start(t, Options{Fabric: fabric}, nil)
	r := AskBody(protocol.APIChat, Show(Picture, Linked))
	encoded(t, e, r)
	collect(t, own, r)
	fabric.counts(t, 2, 0)
	if sent := string(reader.Last(t).Body); strings.Contains(sent, "ec_transfer_params") || strings.Count(sent, "uuid") != 1 {
		t.Errorf("the server got %s", sent)
	}
}

func (s Setup) encodeExchange(t *testing.T, connector string) {
	p := s.pair(t, connector)
	_, e := s.start(t, Options{Fabric: p.Fabric, Encoder: true}, nil)
	body := Show(words, Picture, Film)
	want := Text(Continue(Hash(512), PromptOf(messagesOf(t, body)), 4))
	r := AskBody(protocol.APIChat, body)
	encoded(t, e, r)
	second := AskBody(protocol.APIChat, body) // the decode server's worker knows nothing of embeddings
	_, a, err := p.runBoth(t.Context(), t, r, second)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := readRaw(t, a.Raw); got != want || p.Fabric.Moved() != 1 {
		t.Errorf("text %q, want %q; moved %d", got, want, p.Fabric.Moved())
	}
	p.Fabric.counts(t, 2, 0)
	if sent := string(p.DecodeServer.Last(t).Body); strings.Contains(sent, "ec_transfer_params") {
		t.Errorf("the decode server got %s", sent)
	}
}

func (s Setup) encodeFailures(t *testing.T) {
	d, e := s.start(t, Options{Encoder: true}, nil)
	enc := e.(external.Encoder)
	items, err := enc.Items(AskBody(protocol.APIChat, Show(Picture)))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) error {
		_, err := enc.Encode(ctx, AskBody(protocol.APIChat, string(items[0].Body)))
		return err
	}
	for f, want := range map[Failure]requestplane.Kind{
		Internal: requestplane.KindUnavailable, Busy: requestplane.KindOverloaded, Refuse: requestplane.KindInvalidArgument, Cut: requestplane.KindUnavailable,
		Garbage: requestplane.KindUnavailable, ErrorEvent: requestplane.KindUnavailable, Redirect: requestplane.KindUnavailable,
	} {
		d.Fail(f)
		Kind(t, ask(t.Context()), want)
	}
	d.Fail(Stall)
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("the client left")
	before := len(d.Seen())
	go func() { // ends with the request, which cancel ends
		for len(d.Seen()) == before && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel(left)
	}()
	if err := ask(ctx); !errors.Is(err, left) {
		t.Errorf("after the client left: %v", err)
	}
	cancel(nil)
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
	// What another server is told is not read here, and may be anything.
	_, own := s.start(t, Options{}, nil)
	for _, told := range []string{`[]`, `7`, `{`, `{"a":1}{}`} {
		r := AskBody(protocol.APIChat, Show(Picture))
		r.Encoded = []json.RawMessage{json.RawMessage(told)}
		_, err := Collect(t.Context(), t, own, r)
		Kind(t, err, requestplane.KindUnavailable)
	}
}

func messagesOf(t *testing.T, body string) []byte {
	t.Helper()
	var b struct {
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		t.Fatal(err)
	}
	return b.Messages
}
