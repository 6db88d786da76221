package jinja_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/jinja"
)

type vectorFile struct {
	Now         string          `json:"now"`
	DefaultData json.RawMessage `json:"default_data"`
	Vectors     []vector        `json:"vectors"`
}

type vector struct {
	Template string          `json:"template"`
	Source   string          `json:"source"`
	Data     json.RawMessage `json:"data"`
	Expect   string          `json:"expect"`
	Error    *struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	} `json:"error"`
}

// vars turns JSON into template variables.
func vars(t testing.TB, raw json.RawMessage) *jinja.Dict {
	t.Helper()
	v, err := jinja.FromJSON(raw)
	if err != nil {
		t.Fatalf("variables: %v", err)
	}
	return v.(*jinja.Dict)
}

func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/chat-template/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file vectorFile
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	now, err := time.ParseInLocation("2006-01-02T15:04:05", file.Now, time.Local)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range file.Vectors {
		name, source := v.Template, v.Source
		if name != "" {
			raw, err := os.ReadFile(filepath.Join("testdata/chat-template/templates", name))
			if err != nil {
				t.Fatal(err)
			}
			source = string(raw)
		} else {
			name = "source"
		}
		data := v.Data
		if data == nil {
			data = file.DefaultData
		}
		got, err := render(t, name, source, vars(t, data), now)
		if v.Error == nil {
			if err != nil {
				t.Errorf("vector %d, %s %q: %v", i, name, v.Source, err)
			} else if got != v.Expect {
				t.Errorf("vector %d, %s %q:\ngot  %q\nwant %q", i, name, v.Source, got, v.Expect)
			}
			continue
		}
		kind, message := errorKind(err)
		if err == nil || kind != v.Error.Kind || message != v.Error.Message {
			t.Errorf("vector %d, %s %q: got %q, error %v; want %s: %s", i, name, v.Source, got, err, v.Error.Kind, v.Error.Message)
		}
	}
	t.Logf("%d vectors", len(file.Vectors))
}

func render(t testing.TB, name, source string, data *jinja.Dict, now time.Time) (string, error) {
	t.Helper()
	tmpl, err := jinja.Parse(name, source)
	if err != nil {
		return "", err
	}
	return tmpl.Render(t.Context(), data, jinja.Options{Now: func() time.Time { return now }})
}

// errorKind is the name of the Python exception and its message.
func errorKind(err error) (kind, message string) {
	var syntax *jinja.SyntaxError
	var raised *jinja.RaiseError
	var failed *jinja.RenderError
	switch {
	case errors.As(err, &syntax):
		return "TemplateSyntaxError", syntax.Msg
	case errors.As(err, &raised):
		return "TemplateError", raised.Message
	case errors.As(err, &failed):
		return string(failed.Kind), failed.Msg
	case errors.Is(err, jinja.ErrLimit):
		return "Limit", strings.TrimSpace(err.Error())
	}
	return "", ""
}
