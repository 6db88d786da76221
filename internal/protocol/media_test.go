package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
)

func TestSameMedia(t *testing.T) {
	one := MediaPart{Start: 3, End: 9, Rows: 6, Key: blockhash.Key{1}, Grid: Grid{T: 1, H: 2, W: 3}}
	if same := one; !SameMedia([]MediaPart{one}, []MediaPart{same}) || !SameMedia(nil, nil) || SameMedia([]MediaPart{one}, nil) {
		t.Error("the same images differ")
	}
	for name, change := range map[string]func(*MediaPart){
		"place": func(p *MediaPart) { p.Start-- },
		"end":   func(p *MediaPart) { p.End++ },
		"key":   func(p *MediaPart) { p.Key[15] = 1 },
		"grid":  func(p *MediaPart) { p.Grid = Grid{T: 1, H: 3, W: 2} },
	} {
		other := one
		change(&other)
		if SameMedia([]MediaPart{one}, []MediaPart{other}) {
			t.Errorf("another %s is the same", name)
		}
	}
}

// What a body contains in Base64 is no text: an image of some megabytes is not a prompt of a million
// tokens.
func TestPromptTokensOfBodies(t *testing.T) {
	base64 := strings.Repeat("QUJD", 1<<18)
	text := strings.Repeat("word ", 400)
	for name, tc := range map[string]struct {
		content     string
		least, most int
	}{
		"text":                {`"` + text + `"`, 500, 520},
		"an image":            {`[{"type":"text","text":"` + text + `"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64 + `"}}]`, 1500, 1600},
		"two images":          {`[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64 + `"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64 + `"}}]`, 2048, 2110},
		"a sound":             {`[{"type":"input_audio","input_audio":{"format":"wav","data":"` + base64 + `"}}]`, 1024, 1060},
		"a sound, named last": {`[{"input_audio":{"data": "` + base64 + `","format":"wav"},"type":"input_audio"},{"type":"text","text":"data"}]`, 1024, 1080},
		"an address":          {`[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]`, 20, 40},
		"cut":                 {`[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA`, 20, 40},
	} {
		r := PreprocessedRequest{Body: json.RawMessage(`{"messages":[{"role":"user","content":` + tc.content + `}]}`)}
		if n := r.PromptTokens(); n < tc.least || n > tc.most {
			t.Errorf("%s: %d tokens, want %d to %d", name, n, tc.least, tc.most)
		}
	}
}
