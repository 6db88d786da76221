package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestInline(t *testing.T) {
	for part, want := range map[string]bool{
		`{"image_url":{"url":"data:image/png;base64,QUJD"}}`:                      true,
		`{"image_url": "data:image/png;base64,QUJD"}`:                             true,
		`{"type":"image_url","image_url":{"url":"DATA:image/png;base64,QUJD"}}`:   true,
		`{"type":"video_url","video_url":{"url":"data:video/mp4;base64,QUJD"}}`:   true,
		`{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}}`:     true,
		`{"type":"input_audio","input_audio":{"format":"wav"}}`:                   false,
		`{"type":"input_audio","input_audio":"data:audio/wav;base64,QUJD"}`:       true,
		`{"type":"image_url","image_url":{"url":"https://a/data:image/png"}}`:     false,
		`{"type":"image_url","image_url":{"url":"file:///a.png"}}`:                false,
		`{"type":"image_url","image_url":{}}`:                                     false,
		`{"type":"image_url","image_url":{"url":7}}`:                              false,
		`{"type":"image_url","image_url":{"url":"https://a","url":"data:x,y"}}`:   true,
		`{"type":"image_url","image_url":7}`:                                      false,
		`{"type":"image_url","image_url":[{"url":"data:image/png;base64,QUJD"}]}`: false,
	} {
		n := 0
		_, err := EachMedia(json.RawMessage(`[{"content":[`+part+`]}]`), func(p MediaPart) (bool, error) {
			if n++; p.Inline() != want {
				t.Errorf("%s: inline %v", part, !want)
			}
			return false, nil
		})
		if err != nil || n != 1 {
			t.Errorf("%s: %d parts, %v", part, n, err)
		}
	}
}

// Whatever a client sends as messages is passed on, with nothing changed but what was asked for.
func FuzzEachMedia(f *testing.F) {
	for _, messages := range []string{
		`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,x"}}]}]`,
		`[{"content":"x"},7,null,{"content":[[],{"input_audio":{"data":"x"}},{"video_url":"y","a":{"b":[1e999]}}]}]`,
		`[]`, `{}`, `"image_url"`, ``, `[{"content":[{"type":"image_url","image_url":1,"uuid":2}],"content":[]}]`, `[{"content":[{"type":"image_url","image_url":1,"image_URL":2}]}]`,
	} {
		f.Add([]byte(messages))
	}
	f.Fuzz(func(t *testing.T, messages []byte) {
		seen := 0
		same, err := EachMedia(messages, func(MediaPart) (bool, error) {
			seen++
			return false, nil
		})
		if err == nil && string(same) != string(messages) {
			t.Fatalf("%s became %s", messages, same)
		}
		named, err2 := EachMedia(messages, func(p MediaPart) (bool, error) {
			p.Set("uuid", Text("mine"))
			return true, nil
		})
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%v, and %v", err, err2)
		}
		if err != nil || seen == 0 {
			return
		}
		var before, after any
		if json.Unmarshal(messages, &before) != nil || json.Unmarshal(named, &after) != nil {
			return // with numbers that no reader has
		}
		if n := unname(after); n != seen {
			t.Fatalf("%d parts of %d have a name: %s", n, seen, named)
		}
		unname(before)
		if !reflect.DeepEqual(before, after) && !strings.Contains(string(messages), `\`) {
			t.Fatalf("%s became %s", messages, named)
		}
	})
}

// unname takes the names of the parts of messages away and counts those of the test.
func unname(messages any) (n int) {
	list, _ := messages.([]any)
	for _, m := range list {
		object, _ := m.(map[string]any)
		content, _ := object["content"].([]any)
		for _, c := range content {
			if part, ok := c.(map[string]any); ok {
				if part["uuid"] == "mine" {
					n++
				}
				delete(part, "uuid")
			}
		}
	}
	return n
}
