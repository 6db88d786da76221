package up

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/openai"
)

// url returns the address for clients: the frontend of the first node that has
// one; empty when none has.
func (u *localNodes) url(v client.View) string {
	nodes := slices.SortedFunc(slices.Values(v.Nodes), func(a, b cluster.Node) int { return human.CompareNodes(a.Name, b.Name) })
	trust := u.trust(v)
	for _, n := range nodes {
		if n.FrontendURL != "" && (trust == nil || trust(n.ID)) {
			return strings.TrimSuffix(n.FrontendURL, "/")
		}
	}
	return ""
}

// frontendTimeout bounds one question to a frontend.
const frontendTimeout = 500 * time.Millisecond

// listed asks a frontend for its models and says what is missing until it lists one. A frontend
// that wants a key answers, and says nothing to us.
func listed(ctx context.Context, s *session.Session, url, model string) (why string, needsKey bool) {
	ctx, cancel := context.WithTimeout(ctx, frontendTimeout)
	defer cancel()
	c, err := openai.New(url, s.FrontendKey())
	if err != nil {
		return "its address is no URL: " + url, false
	}
	defer c.Close()
	models, err := c.Models(ctx)
	var said *openai.Error
	switch {
	case errors.As(err, &said) && (said.Status == http.StatusUnauthorized || said.Status == http.StatusForbidden):
		return "", true
	case errors.As(err, &said):
		return fmt.Sprintf("for an answer at %s; so far status %d", url, said.Status), false
	case errors.Is(err, openai.ErrProtocol):
		return "for a list of models at " + url, false
	case err != nil:
		return "for an answer at " + url, false
	case slices.ContainsFunc(models, func(m openai.Model) bool { return m.ID == model }):
		return "", false
	}
	return "until it lists " + model, false
}
