package minitok

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

func TestLoadCuts(t *testing.T) {
	tests := []struct {
		name        string
		vocab, want int
		wantErr     bool
	}{
		{"one too small", MinVocab - 1, 0, true},
		{"bytes only", MinVocab, MinVocab, false},
		{"cut", 400, 400, false},
		{"whole", 1280, 1280, false},
		{"padded", 151936, 1280, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tok, err := Load(tt.vocab)
			if (err != nil) != tt.wantErr {
				t.Fatalf("err = %v", err)
			}
			if err != nil {
				return
			}
			if tok.Size() != tt.want || len(tok.Pieces()) != tt.want {
				t.Errorf("size = %d, pieces = %d, want %d", tok.Size(), len(tok.Pieces()), tt.want)
			}
			if id, ok := tok.ID(TurnEnd); !ok || int(id) != tt.want-1 {
				t.Errorf("id of the end of a turn = %d, %v", id, ok)
			}
		})
	}
	tok, err := Load(MinVocab)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := tok.ID("none"); ok {
		t.Error("unknown special token found")
	}
}

func TestFiles(t *testing.T) {
	tok, err := Load(300)
	if err != nil {
		t.Fatal(err)
	}
	files, err := tok.Files(512)
	if err != nil {
		t.Fatal(err)
	}
	again, err := tok.Files(512)
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if !bytes.Equal(files[name], again[name]) {
			t.Errorf("%s differs between two calls", name)
		}
	}
	var file struct {
		Added []struct {
			ID      int
			Content string
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges []string
		}
	}
	if err := json.Unmarshal(files["tokenizer.json"], &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Model.Vocab) != 297 || len(file.Model.Merges) != 41 || len(file.Added) != 3 {
		t.Fatalf("%d tokens, %d merges, %d added", len(file.Model.Vocab), len(file.Model.Merges), len(file.Added))
	}
	for id, p := range tok.Pieces() {
		if p.Special {
			if a := file.Added[id-297]; a.ID != id || a.Content != p.Text {
				t.Errorf("added token %+v, piece %d is %q", a, id, p.Text)
			}
			continue
		}
		if got := file.Model.Vocab[Encode(p.Text)]; got != id {
			t.Errorf("token %q has id %d in the file, want %d", p.Text, got, id)
		}
	}
	var config struct {
		EOS string `json:"eos_token"`
		Max int    `json:"model_max_length"`
	}
	if err := json.Unmarshal(files["tokenizer_config.json"], &config); err != nil {
		t.Fatal(err)
	}
	if config.EOS != TurnEnd || config.Max != 512 {
		t.Errorf("config = %+v", config)
	}
}

func TestMostPiecesAreText(t *testing.T) {
	tok, err := Load(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	text := 0
	for _, p := range tok.Pieces() {
		if utf8.ValidString(p.Text) && len(p.Text) > 1 {
			text++
		}
	}
	if n := tok.Size(); text < n*3/4 {
		t.Errorf("of %d pieces %d are text", n, text)
	}
}

func TestEncodeRoundTrip(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	if got := decode(Encode(string(all))); got != string(all) {
		t.Errorf("got %q", got)
	}
	if Encode(" a\n") != "ĠaĊ" {
		t.Errorf("got %q", Encode(" a\n"))
	}
}

func TestMarshalRefusesEqualTokens(t *testing.T) {
	if _, err := Marshal([]string{"a b", "ab c", "b c", "a bc"}); err == nil {
		t.Error("two merges make abc: want an error")
	}
}
