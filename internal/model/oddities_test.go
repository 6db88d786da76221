package model

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/mapped"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// TestTiedHeadOfItsOwn: a head in the files of a tied model is used if it is another than the
// embedding, and told.
func TestTiedHeadOfItsOwn(t *testing.T) {
	dir := write(t, Synthetic{Family: "llama", Hidden: 16, Heads: 2, HeadDim: 8, FFN: 24, Vocab: 260, Tied: true})
	specs := append(mustOpen(t, dir).Config().Tensors(), TensorSpec{Name: "lm_head.weight", Shape: []int{260, 16}})
	path := filepath.Join(dir, safetensors.SingleName)
	weights(t, path, safetensors.F32, specs)
	m := mustOpen(t, dir)
	if head, ok := m.Weight(RoleHead, 0); !ok || head.Name != "model.embed_tokens.weight" || len(m.Warnings()) > 0 {
		t.Errorf("the same head: %q, %v", head.Name, m.Warnings())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _ := m.set.Tensor("lm_head.weight")
	at := 8 + int64(binary.LittleEndian.Uint64(raw)) + head.Offset + int64(len(head.Data)) - 1
	raw[at] = 1
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	m = mustOpen(t, dir)
	if head, ok := m.Weight(RoleHead, 0); !ok || head.Name != "lm_head.weight" || m.Config().TiedHead {
		t.Errorf("another head: %q is used", head.Name)
	}
	if !slices.ContainsFunc(m.Warnings(), func(w string) bool {
		return strings.Contains(w, "lm_head.weight") && strings.Contains(w, "tie_word_embeddings")
	}) {
		t.Errorf("warnings %q", m.Warnings())
	}
	if !slices.ContainsFunc(m.Tensors(), func(s TensorSpec) bool { return s.Role == RoleHead }) {
		t.Error("the head is not among the tensors")
	}
}

// TestPointersOfLFS: what Git leaves in place of a large file is called by its name.
func TestPointersOfLFS(t *testing.T) {
	pointer := []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n")
	for _, name := range []string{safetensors.SingleName, safetensors.IndexName, TokenizerName, ConfigName, "model.gguf"} {
		dir := write(t, Synthetic{Family: "llama", Hidden: 16, Vocab: 260})
		if name == safetensors.IndexName || name == "model.gguf" {
			if err := os.Remove(filepath.Join(dir, safetensors.SingleName)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), pointer, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{}); !errors.Is(err, mapped.ErrPointer) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "git lfs pull") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTemplatesOfAFolder: the templates beside the usual one are files of the model.
func TestTemplatesOfAFolder(t *testing.T) {
	dir := write(t, Synthetic{Family: "llama", Hidden: 16, Vocab: 260})
	folder := filepath.Join(dir, TemplateFolder)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tool_use.jinja", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("{{ 1 }}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, f := range mustOpen(t, dir).Files() {
		if strings.Contains(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	if !slices.Equal(names, []string{"additional_chat_templates/tool_use.jinja"}) {
		t.Errorf("%q", names)
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(folder, "out.jinja")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrOutside) {
		t.Errorf("a link that leads out: %v", err)
	}
}
