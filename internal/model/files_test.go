package model

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestFiles(t *testing.T) {
	dir := write(t, tiny())
	putFile(t, dir, "chat_template.jinja", "{{ x }}")
	putFile(t, dir, "README.md", "not for the card")
	m := mustOpen(t, dir)
	var names []string
	for _, f := range m.Files() {
		names = append(names, f.Name)
		content, err := os.ReadFile(filepath.Join(dir, f.Name))
		if err != nil || !bytes.Equal(content, f.Data) || f.Size != int64(len(content)) || len(f.SHA256) != 64 {
			t.Errorf("%s: size %d, sha256 %q, err %v", f.Name, f.Size, f.SHA256, err)
		}
	}
	want := []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
	if !slices.Equal(names, want) {
		t.Errorf("files = %v, want %v", names, want)
	}
}

func TestEOSFromConfig(t *testing.T) {
	dir := write(t, tiny())
	for _, tt := range []struct {
		generation string
		want       []uint32
	}{
		{"", []uint32{259}},
		{"{}", []uint32{259}},
		{`{"eos_token_id":null}`, []uint32{259}},
		{`{"eos_token_id":7}`, []uint32{7}},
		{`{"eos_token_id":[9,7,9]}`, []uint32{7, 9}},
	} {
		_ = os.Remove(filepath.Join(dir, "generation_config.json"))
		if tt.generation != "" {
			putFile(t, dir, "generation_config.json", tt.generation)
		}
		if got := mustOpen(t, dir).EOS(); !slices.Equal(got, tt.want) {
			t.Errorf("%q: eos = %v, want %v", tt.generation, got, tt.want)
		}
	}
}

func TestTokenLimit(t *testing.T) {
	tests := []struct {
		name, tokenizer string
		want            int
	}{
		{"no file", "", 260},
		{"vocabulary", `{"model":{"vocab":{"a":0,"b":9}}}`, 10},
		{"added tokens", `{"model":{"vocab":{"a":0}},"added_tokens":[{"id":20,"content":"x"}]}`, 21},
		{"list of pieces", `{"model":{"vocab":[["a",-1.5],["b",-2.5]]}}`, 2},
		{"nothing known", `{}`, 260},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := write(t, tiny())
			if tt.tokenizer == "" {
				if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
					t.Fatal(err)
				}
			} else {
				putFile(t, dir, "tokenizer.json", tt.tokenizer)
			}
			if got := mustOpen(t, dir).TokenLimit(); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func FuzzTokenLimit(f *testing.F) {
	f.Add([]byte(`{"model":{"vocab":{"a":0}},"added_tokens":[{"id":20}]}`))
	f.Add([]byte(`{"model":{"vocab":[["a",1]]}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if n, err := readTokenLimit(content, 1000); err == nil && (n < 1 || n > 1000) {
			t.Fatalf("limit %d", n)
		}
	})
}
