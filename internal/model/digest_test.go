package model

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

func TestDigest(t *testing.T) {
	digest := func(change func(dir string, s *Synthetic)) string {
		t.Helper()
		s, dir := tiny(), t.TempDir()
		change(dir, &s)
		if err := s.Write(dir); err != nil {
			t.Fatal(err)
		}
		change(dir, nil)
		return mustOpen(t, dir).Digest()
	}
	onSpec := func(change func(s *Synthetic)) func(string, *Synthetic) {
		return func(_ string, s *Synthetic) {
			if s != nil {
				change(s)
			}
		}
	}
	after := func(change func(dir string)) func(string, *Synthetic) {
		return func(dir string, s *Synthetic) {
			if s == nil {
				change(dir)
			}
		}
	}
	base := digest(onSpec(func(*Synthetic) {}))
	if len(base) != 64 || digest(onSpec(func(*Synthetic) {})) != base {
		t.Fatalf("digest %q is not repeatable", base)
	}
	seen := map[string]string{base: "base"}
	for name, change := range map[string]func(string, *Synthetic){
		"other weights":   onSpec(func(s *Synthetic) { s.Seed = 2 }),
		"other type":      onSpec(func(s *Synthetic) { s.DType = "bf16" }),
		"other shards":    onSpec(func(s *Synthetic) { s.Shards = 2 }),
		"other config":    after(func(dir string) { edit(t, dir, "config.json", func(f map[string]any) { f["x"] = 1 }) }),
		"other tokenizer": after(func(dir string) { edit(t, dir, "tokenizer.json", func(f map[string]any) { f["x"] = 1 }) }),
		"no tokenizer":    after(func(dir string) { _ = os.Remove(filepath.Join(dir, "tokenizer.json")) }),
		"last byte of the weights": after(func(dir string) {
			path := filepath.Join(dir, safetensors.SingleName)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			raw[len(raw)-1] ^= 1
			putFile(t, dir, safetensors.SingleName, string(raw))
		}),
	} {
		d := digest(change)
		if other, dup := seen[d]; dup {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		seen[d] = name
	}
	same := digest(after(func(dir string) { putFile(t, dir, "tokenizer_config.json", "{}") }))
	if same != base {
		t.Error("tokenizer_config.json changes the digest")
	}
}
