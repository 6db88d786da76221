package outside

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// All files of a folder that frontends read, and no others.
func TestModelFiles(t *testing.T) {
	dir := t.TempDir()
	want := []string{"tokenizer.json", "chat_template.jinja", "additional_chat_templates/tool_use.jinja"}
	for _, name := range append(want, "model.safetensors", "additional_chat_templates/notes.txt", "other/x.jinja") {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Model{Dir: dir}.files()
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range want {
		if string(files[name]) != name {
			t.Errorf("%s: %q", name, files[name])
		}
	}
	if a, b := (Model{Name: "m"}).card(files), (Model{Name: "m"}).card(map[string][]byte{want[0]: files[want[0]]}); a.Digest == b.Digest || len(a.Files) != len(want) {
		t.Errorf("cards %+v and %+v", a, b)
	}
	for i := range maxTemplates { // and the one that is there
		if err := os.WriteFile(filepath.Join(dir, "additional_chat_templates", strconv.Itoa(i)+".jinja"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (Model{Dir: dir}).files(); err == nil {
		t.Error("too many templates are read")
	}
}
