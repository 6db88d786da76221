package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/external"
)

// maxModels bounds the models of a server that are kept.
const maxModels = 4096

// Model is one entry of /v1/models.
type Model struct {
	ID          string  `json:"id"`
	Root        string  `json:"root"`   // where its files are
	Parent      *string `json:"parent"` // of a LoRA adapter
	MaxModelLen int     `json:"max_model_len"`
	Meta        *struct {
		Context int `json:"n_ctx_train"`
	} `json:"meta"` // of llama.cpp
}

// Ready turns the error of a first call into one of Probe: what may go by itself wraps
// [external.ErrNotReady]; what an operator must mend says how.
func Ready(err error) error {
	var r *Refusal
	var cert *tls.CertificateVerificationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &cert):
		return fmt.Errorf("the server's certificate is not trusted (ca_file names one that is): %w", err)
	case errors.Is(err, errRedirect):
		return err
	case errors.As(err, &r) && (r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden):
		return fmt.Errorf("the server refuses the API key (api_key_file has it): %w", err)
	case Missing(err):
		return fmt.Errorf("the server is none of this engine, or its address has a wrong path: %w", err)
	}
	return fmt.Errorf("%w: %w", external.ErrNotReady, err)
}

// Optional turns the error of a call into nil where the server just lacks the path or does not
// show it.
func Optional(err error) error {
	var r *Refusal
	if Missing(err) || errors.As(err, &r) && (r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden) {
		return nil
	}
	return err
}

// Models asks what the server serves, and notes it in the facts. It fails unless want is among
// it; an empty one is not looked for.
func (c *Client) Models(ctx context.Context, want string, f *external.Facts) ([]Model, error) {
	var list struct {
		Data []Model `json:"data"`
	}
	if err := c.GetJSON(ctx, "/v1/models", &list); err != nil {
		return nil, Ready(err)
	}
	if len(list.Data) > maxModels {
		list.Data = list.Data[:maxModels]
	}
	for _, m := range list.Data {
		f.Models = append(f.Models, m.ID)
		if m.Parent != nil && *m.Parent != "" && *m.Parent != m.ID {
			if f.Parents == nil {
				f.Parents = map[string]string{}
			}
			f.Parents[m.ID] = *m.Parent
			continue
		}
		switch {
		case f.MaxModelLen != 0:
		case m.MaxModelLen > 0:
			f.MaxModelLen = m.MaxModelLen
		case m.Meta != nil:
			f.MaxModelLen = max(m.Meta.Context, 0)
		}
	}
	if want != "" && !slices.Contains(f.Models, want) {
		return nil, fmt.Errorf("the server does not serve %q, but %s (served_model says by which name it knows the model)", want, names(f.Models))
	}
	return list.Data, nil
}

// Adapters returns the names of the LoRA adapters of the model that a server serves under a name,
// or under another name for the same files: sorted, each once. An adapter has none.
func Adapters(models []Model, name string) []string {
	base := Base(models, name)
	if name != "" && base.ID != name {
		return nil
	}
	of := map[string]bool{base.ID: true}
	for _, m := range models {
		if (m.Parent == nil || *m.Parent == "") && m.Root != "" && m.Root == base.Root {
			of[m.ID] = true
		}
	}
	var out []string
	for _, m := range models {
		if m.Parent != nil && of[*m.Parent] && !of[m.ID] {
			out = append(out, m.ID)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Base returns the model that the server serves under a name, the base of an adapter; the
// first one without a name.
func Base(models []Model, name string) Model {
	for range 2 {
		for _, m := range models {
			if m.ID != name {
				continue
			}
			if m.Parent == nil || *m.Parent == "" || *m.Parent == name {
				return m
			}
			name = *m.Parent
			break
		}
	}
	for _, m := range models {
		if m.Parent == nil || *m.Parent == "" {
			return m
		}
	}
	return Model{}
}

func names(models []string) string {
	const most = 8
	if len(models) > most {
		return tidy(strings.Join(models[:most], ", "), "") + ", …"
	}
	return tidy(strings.Join(models, ", "), "")
}

// PairKey joins what must be equal for servers to exchange KV.
func (c Config) PairKey(parts ...string) string {
	if own := c.Engine.Server.Pair; own != "" {
		parts = append(parts, own)
	}
	return strings.Join(append([]string{c.Engine.Backend, c.Connector()}, parts...), "|")
}
