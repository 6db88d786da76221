package outside

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/model/minitok"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// Model describes a model whose engine is outside.
type Model struct {
	Name string // as clients ask for it
	// Dir is a folder with tokenizer.json and, as far as the model has them,
	// tokenizer_config.json, special_tokens_map.json, chat_template.jinja, further templates
	// in additional_chat_templates,
	// generation_config.json and config.json. Empty means a small tokenizer that knows
	// every byte, with a ChatML template.
	Dir           string
	ContextLength int // tokens of prompt and answer; default 4096
	// Concurrent is the number of requests that the engine handles well at a time; default
	// 64. Frontends measure load by it, the engine itself takes more.
	Concurrent int
}

// modelFiles are the files of a folder that frontends read.
var modelFiles = []string{
	chat.TokenizerFile, chat.TokenizerConfigFile, chat.SpecialTokensFile, chat.TemplateFile, chat.TemplateJSONFile,
	chat.GenerationConfigFile, chat.ModelConfigFile,
}

// maxTemplates bounds the chat templates for other uses.
const maxTemplates = 100

// files reads the model's files.
func (m Model) files() (map[string][]byte, error) {
	if m.Dir == "" {
		tok, err := minitok.Load(minitok.MinVocab)
		if err != nil {
			return nil, err
		}
		return tok.Files(m.ContextLength)
	}
	more, err := filepath.Glob(filepath.Join(m.Dir, chat.TemplateFolder, "*"+filepath.Ext(chat.TemplateFile)))
	if err != nil { // the name of the folder is no pattern
		return nil, fmt.Errorf("templates of %s: %w", m.Dir, err)
	}
	if len(more) > maxTemplates {
		return nil, fmt.Errorf("%s: %d templates, at most %d are read", filepath.Join(m.Dir, chat.TemplateFolder), len(more), maxTemplates)
	}
	names := slices.Clone(modelFiles)
	for _, path := range more {
		names = append(names, chat.TemplateFolder+filepath.Base(path))
	}
	out := map[string][]byte{}
	for _, name := range names {
		switch b, err := os.ReadFile(filepath.Join(m.Dir, name)); {
		case err == nil:
			out[name] = b
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}

// Describe returns the card of a model and the contents of its files by name, as frontends need
// them.
func (m Model) Describe() (cluster.ModelCard, map[string][]byte, error) {
	files, err := m.files()
	if err != nil {
		return cluster.ModelCard{}, nil, err
	}
	if _, err := chat.Load(files); err != nil { // as frontends will
		return cluster.ModelCard{}, nil, err
	}
	return m.card(files), files, nil
}

// card describes the model to frontends.
func (m Model) card(files map[string][]byte) cluster.ModelCard {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q %d\n", m.Name, m.ContextLength) // never fails
	c := cluster.ModelCard{
		DisplayName: m.Name, ModelType: "Chat | Completions", ModelInput: cluster.InputTokens, WorkerType: cluster.RoleDecode,
		ContextLength: m.ContextLength, BlockSize: cluster.DefaultBlockSize, HashSeed: cluster.DefaultHashSeed,
		Runtime: cluster.RuntimeConfig{
			MaxNumSeqs:    m.Concurrent,
			TotalKVBlocks: m.Concurrent * (m.ContextLength/cluster.DefaultBlockSize + 1), TensorParallel: 1,
		},
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		one := sha256.Sum256(files[name])
		f := cluster.CardFile{Name: name, SHA256: hex.EncodeToString(one[:]), Size: int64(len(files[name]))}
		_, _ = fmt.Fprintf(sum, "%q %s\n", f.Name, f.SHA256) // never fails
		c.Files = append(c.Files, f)
	}
	c.Digest = "outside:" + hex.EncodeToString(sum.Sum(nil))
	return c
}

// ServeModel serves a model by an engine: frontends of the runtime's namespace offer it under
// its name, and send prompts to the engine. It returns the endpoints, which serve until they
// or the runtime are closed.
func ServeModel(ctx context.Context, d *runtime.DistributedRuntime, m Model, engine Engine) ([]*runtime.Served, error) {
	served, err := serveModel(ctx, d, m, engine)
	if err != nil {
		return nil, fmt.Errorf("serve model %s: %w", m.Name, err)
	}
	return served, nil
}

func serveModel(ctx context.Context, d *runtime.DistributedRuntime, m Model, engine Engine) ([]*runtime.Served, error) {
	if m.Name == "" || engine == nil {
		return nil, errors.New("a name and an engine are required")
	}
	if m.ContextLength <= 0 {
		m.ContextLength = 4096
	}
	if m.Concurrent <= 0 {
		m.Concurrent = 64
	}
	card, files, err := m.Describe()
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(files[chat.TokenizerFile])
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(card)
	if err != nil {
		return nil, err
	}
	s := &servedModel{card: card, files: files, tok: tok, engine: engine}
	c := d.In("").Component(cluster.RoleDecode.Component())
	served, err := c.Endpoint(cluster.EndpointModelFiles).Serve(ctx, s.sendFiles)
	if err != nil {
		return nil, err
	}
	generate, err := c.Endpoint(cluster.EndpointGenerate).Serve(ctx, s.generate)
	if err != nil {
		return nil, err
	}
	key := func(id cluster.InstanceID) string {
		return cluster.CardKey(d.Namespace(), cluster.RoleDecode.Component(), cluster.EndpointGenerate, id)
	}
	if _, err = d.PutOwned(ctx, key, func(cluster.InstanceID) []byte { return body }); err != nil {
		return nil, err
	}
	return []*runtime.Served{served, generate}, nil
}
