package frontend

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	drawn "image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/protocol"
)

// sighted gives a worker a small LLaVA, of which an image has 25 rows. A prompt is what its
// messages say, one after the other.
func sighted(t *testing.T) func(*fake) {
	t.Helper()
	dir, files := modeltest.Sighted(t, "llava"), map[string][]byte{}
	for _, name := range []string{"config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	files["tokenizer_config.json"] = bytes.Replace(files["tokenizer_config.json"], []byte(" Answer: "), nil, 1)
	var config struct {
		Token uint32 `json:"image_token_id"`
	}
	if err := json.Unmarshal(files["config.json"], &config); err != nil {
		t.Fatal(err)
	}
	return func(fk *fake) { fk.files, fk.card.Images = files, &cluster.ImageCard{Token: config.Token} }
}

// A query names the images of its prompt as workers know them. Their content is kept for nobody.
func TestQueryWithImages(t *testing.T) {
	w := newWorld(t)
	sees := sighted(t)
	pre, dec := w.prefiller("worker-1", holds("worker-1", nil), sees), w.fake("worker-2", prefilledBy("abc"), sees)
	s := routing()
	f := w.routed(s, 1, 1)
	var contents [][]byte
	for shade := range uint8(2) {
		m := drawn.NewGray(drawn.Rect(0, 0, 30, 20))
		m.Set(3, 4, color.Gray{200 + shade})
		var b bytes.Buffer
		if err := png.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
		contents = append(contents, b.Bytes())
	}
	part := func(i int) body {
		return body{"type": "image_url", "image_url": body{"url": "data:image/png;base64," + base64.StdEncoding.EncodeToString(contents[i])}}
	}
	text := body{"type": "text", "text": "Which code?"}
	ask := func(parts []body, ext body) *extension {
		t.Helper()
		e := extensionOf(t, readAll(t, f.post("/v1/chat/completions", chatBody(body{"messages": []body{{"role": "user", "content": parts}}, "nvext": ext}))))
		f.contents.mu.Lock()
		if len(f.contents.byID) != 0 || f.contents.bytes != 0 {
			t.Errorf("%d images of %d bytes are kept", len(f.contents.byID), f.contents.bytes)
		}
		f.contents.mu.Unlock()
		if e == nil || e.Workers == nil {
			t.Fatalf("it tells %+v", e)
		}
		return e
	}
	query := body{"query_instance_id": true}
	e := ask([]body{part(0), part(1), text}, query)
	if *e.Workers != ranAt(pre, dec) || e.Route.PrefillWhy != "long prompt" || e.Route.PromptToks != len(e.TokenIDs) {
		t.Errorf("it goes to %+v, %+v", e.Workers, e.Route)
	}
	token := f.registry.find(testModel).pictures.token
	rows := slices.DeleteFunc(slices.Clone(e.TokenIDs), func(id uint32) bool { return id != token })
	if len(rows) != 50 || len(e.Images) != 2 || e.Images[0].Key == e.Images[1].Key {
		t.Fatalf("%d rows, images %+v", len(rows), e.Images)
	}
	for i, x := range e.Images {
		if x.Content != protocol.ContentID(contents[i]) || x.Rows != 25 {
			t.Errorf("image %d: %+v", i, x)
		}
	}
	last := ask([]body{text, part(1)}, query)
	if *last.Workers != ranAt(dec, dec) || last.Route.PrefillWhy != whyEndsWithImage || !slices.Equal(last.Images, e.Images[1:]) {
		t.Errorf("with an image at its end it goes to %+v, %+v, with %+v", last.Workers, last.Route, last.Images)
	}
	for _, fk := range []*fake{pre, dec} {
		if n := len(fk.got()) + f.load.InFlight(fk.drt.ID()) + f.prefillLoad.InFlight(fk.drt.ID()); n != 0 {
			t.Errorf("%s was asked or is booked", fk.name)
		}
	}
	if n := len(f.decisions.find("", 10)); n != 0 {
		t.Errorf("%d decisions are kept", n)
	}
	// What was said comes true.
	if ran := ask([]body{part(0), part(1), text}, body{"extra_fields": []string{"worker_id"}}); *ran.Workers != *e.Workers || len(ran.Images) != 0 {
		t.Errorf("it ran on %+v", ran)
	}
	got := dec.got()
	if len(got) != 1 || len(got[0].Media) != 2 || !slices.Equal(got[0].TokenIDs, e.TokenIDs) {
		t.Fatalf("%+v", got)
	}
	for i, m := range got[0].Media {
		if x := e.Images[i]; hex.EncodeToString(m.Key[:]) != x.Key || m.Source.ID != x.Content || m.Rows != x.Rows {
			t.Errorf("image %d: %+v, it was told %+v", i, m, x)
		}
	}
	s.change(func(k *Settings) { k.Prefill.MaxLocalTokens = 100 })
	if e := ask([]body{part(0), text}, query); *e.Workers != ranAt(dec, dec) || !strings.Contains(e.Route.PrefillWhy, "short") {
		t.Errorf("a short prompt goes to %+v, because %q", e.Workers, e.Route.PrefillWhy)
	}
}
