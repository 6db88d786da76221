package clustertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/externaltest"
	"github.com/dynctl/dynctl/internal/external/openai"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// Our own frontend is one of the servers with OpenAI's API that workers may stand for: it does what
// the suite asks of all of them.
func TestOwnFrontendAsAServer(t *testing.T) {
	c := Start(t, Options{Decode: 1})
	dir := builtinFolder(t)
	files := chat.Files{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := tokenizer.Load(files[chat.TokenizerFile])
	if err != nil {
		t.Fatal(err)
	}
	p, err := chat.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	const words = "What is a KV block?"
	externaltest.ServerSuite(t, externaltest.Server{
		Config: wire.Config{Engine: cluster.EngineSpec{Backend: cluster.BackendOpenAI}, Role: cluster.RoleDecode, URL: c.URL, Model: c.Model},
		New:    func(c wire.Config) (external.Engine, error) { return openai.New(c) },
		Prompt: tok.Encode(words, false), Words: words, End: p.EOS(), Context: c.contextLength(),
		Running: func() (n int) {
			for _, st := range c.LiveStats() {
				n += st.Stats.Running + st.Stats.Waiting
			}
			return n
		},
	})
}

// contextLength is the longest prompt and answer of the cluster's model, as its card says.
func (c *Cluster) contextLength() int {
	c.t.Helper()
	var list struct {
		Data []struct {
			Window int `json:"context_window"`
		}
	}
	if err := c.getJSON("/v1/models", &list); err != nil || len(list.Data) != 1 || list.Data[0].Window == 0 {
		c.t.Fatalf("%+v, %v", list, err)
	}
	return list.Data[0].Window
}
